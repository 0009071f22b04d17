"""Another name of `whet.models.scripted`."""

from whet.models.scripted import *

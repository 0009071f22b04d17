"""Another name of `whet.models.scripted_replies`."""

from whet.models.scripted_replies import *

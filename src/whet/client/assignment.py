"""Another name of `whet_client.assignment`."""

from whet_client.assignment import *

"""Another name of `whet_client.records`."""

from whet_client.records import *

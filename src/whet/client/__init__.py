"""Another name of `whet_client`, of the distribution whet-client."""

from whet_client import *

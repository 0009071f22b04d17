"""Wrong inputs as data: each is refused, or warned of, before anything is paid."""

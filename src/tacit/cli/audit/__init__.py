"""The audits of `tacit audit`, one module each, and what they share. `tacit.registry.AUDITS` names them."""

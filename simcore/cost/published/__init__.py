"""Published measurements as questions, and the fit of constants to them."""

//! Policy: every published knob as data, and the rules that turn it into numbers.

//! Every refusal of a plan, by rule.

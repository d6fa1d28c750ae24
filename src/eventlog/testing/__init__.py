"""What tests of training code and of sinks can use."""

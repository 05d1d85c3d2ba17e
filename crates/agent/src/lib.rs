//! A device on this machine, or thousands of them in one process: HTTP and files around the device's side of the protocol
//! ([`device::protocol`]).

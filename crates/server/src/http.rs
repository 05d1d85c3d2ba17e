//! An accept loop that slow and hostile clients cannot fill, and the routes of the protocol.

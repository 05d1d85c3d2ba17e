//! The server's side of HTTP, over real sockets: every route, everything that can be wrong with a request, and clients that are slow,
//! many or hostile.

mod browsers;
mod crowds;
mod hostile;
mod hub;
mod measured;
mod peers;
mod routes;
mod slow;
mod tls;

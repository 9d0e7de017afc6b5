// Package access stands before every handler of the HTTP server: it finds the one of a request
// ([Router]), bounds what clients hold of the process ([Limit]), and refuses with problem details
// ([Problem], RFC 9457).
//
// It tells who may use the HTTP API: by tokens ([LoadTokens]) and, for TLS, with
// which certificate the server proves who it is ([LoadCertificate]). Both come from files that
// are read again on demand. A file that is not valid then changes nothing.
//
// A file of tokens has one on each line: the token, what it may do, and the collections for
// which it counts, separated by commas; all if there are none. Empty lines and those that begin
// with # do not count.
//
//	8f14e45fceea167a5a36dedd4bea2543  read-write
//	c9f0f895fb98ab9159f51fd0297e236d  read-only  orders,carts
//
// A file without any token lets nobody in.
package access

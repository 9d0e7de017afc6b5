// Package bulk writes many documents in one HTTP request, one on each line (NDJSON). [Import]
// reads the lines and publishes them (importing.go), and puts their outcomes into the order of
// the lines (order.go). Both directions flow at the same time.
//
// An import holds at most 4,096 lines without an outcome that the client has taken, and those
// that package client has in flight. So a client that sends without reading outcomes stops
// making progress once the buffers between are full, and after a minute the import ends.
package bulk

// Package integration tests lapse as a whole, on real servers, in real processes and in
// real time. Package harness starts the servers. Package oracle is the model that each
// history is compared with at its end.
//
// A test of a guarantee has its name, TestG1_ to TestG12_. Its comment says which change
// of the code would make it fail.
package integration

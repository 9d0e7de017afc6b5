// Package integration holds the tests of lapse as a whole: real servers, real
// processes, real time. What they share stands in harness; what must have
// happened is said by oracle, which every history ends with.
//
// The tests of the guarantees are named after them, TestG1_ to TestG9_, and say
// which change of the code would make them fail.
package integration

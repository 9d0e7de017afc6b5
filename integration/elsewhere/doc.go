// Package elsewhere tests lapse as programs use it that are not written in Go: with curl, from
// Node and from Python. It runs the commands and the programs of README.md and deploy/README.md as
// they stand there, and compares what they print with what the documents show.
package elsewhere

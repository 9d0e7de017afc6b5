// Package elsewhere tests lapse as its users meet it, outside of Go too: with the commands and the programs of every
// document, with curl, from Node and from Python. Each block of each document runs as it stands there, from a fresh
// state, in the order of the page, and what it prints is compared with what the page shows.
package elsewhere

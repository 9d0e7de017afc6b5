// Package cli is the command line of lapse. [Run] parses the arguments, runs the command,
// reports its error and returns the exit code.
//
// Each command is a struct of its flags and arguments, for kong, with a method Run. It prints its
// result and returns its error, which package output then reports. The texts of its help are in help.txt.
//
//	cli.go                         the list of all commands
//	parse.go                       flags before the command; the errors of a wrong command line
//	help.go, help.txt              help, connection; completion.go: completion, and what a shell asks
//	connection.go, values.go       flags and arguments that commands have in common, to embed in a command; a client
//	                               command embeds [Connection], one about a document [Target], one about a
//	                               collection [Collection]
//	serve.go, demo.go, version.go  serve, begin-anew; demo; version: they need no connection
//	write.go                       put, create, replace, patch; schedule
//	many.go                        touch, delete: of a document, or of all that are selected
//	configure.go, apply.go         config, drop; apply
//	collections.go                 pause, resume; the error about a name that is no collection
//	read.go, selection.go          get, list, count, forecast, collections; which documents a list or a query has
//	watch.go, health.go            watch; health
//	status.go                      status, snapshot, forgotten
//	region.go                      promote, demote, forget-follower
//	forward.go                     forward, archive: what they do is in package forward
//	import.go, shape.go, export.go many documents, a line of JSON each (NDJSON)
//	backup.go                      backup, restore: what they do is in package backup
package cli

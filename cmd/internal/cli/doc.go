// Package cli is the command line of lapse. [Run] parses the arguments, runs the command,
// reports its error and returns the exit code.
//
// Each command is a struct of its flags and arguments, for kong, with a method Run. It prints its
// result and returns its error, which package output then reports.
//
//	cli.go                              the list of all commands
//	arguments.go                        flags before the command, help, what a shell asks
//	parse.go, contradictions.go         the errors of a wrong command line
//	values.go, connection.go, login.go,
//	natscontext.go, target.go,
//	secretfiles.go                      flags and arguments that commands have in common, to embed
//	                                    in a command; a client command embeds [Connection], one
//	                                    about a document [Target], one about a collection [Collection]
//	serve.go, beginanew.go, demo.go, version.go, completion.go
//	                                    commands that need no connection
//	write.go, schedule.go               put, create, replace, patch, touch, delete; schedule
//	configure.go                        config, drop
//	read.go                             get, list, count, forecast, collections
//	selection.go, conditions.go         which documents a list or a query has
//	many.go                             delete and touch of all that are selected
//	watch.go, status.go, snapshot.go, health.go
//	forward.go                          forward, archive: what they do is in package forward
//	exists.go                           the error about a name that is no collection
//	import.go, lines.go, meter.go,
//	export.go                           many documents, a line of JSON each (NDJSON)
//	backup.go                           backup, restore: what they do is in package backup
package cli

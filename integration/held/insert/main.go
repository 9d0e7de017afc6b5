// Command insert finds the operations of lapse: the functions that make more than one call to Redis or NATS, so that
// something can happen in between.
//
//	insert list            prints them
//	insert into DIRECTORY  writes a copy of lapse with the calls of package held, and prints the file that the flag
//	                       -overlay of the command go wants
//	insert check FILE      reads the lines that tests have noted (LAPSE_HELD), prints what has happened within each
//	                       operation, and fails if there is one within which nothing has
//	insert compare FILE    fails unless what check has printed into the file has all operations that there are
//
//	main.go    the commands, the table
//	find.go    which functions make calls
//	paths.go   how many calls a function makes at most
//	write.go   the copy
//
// Run it at the root of the module.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/integration/held"
)

// rooms are the packages whose operations are listed.
var rooms = []string{"./processor/...", "./sink/...", "./cmd/internal/..."}

// without are packages whose operations are not: the command line makes the requests of a person, one after the other,
// by the operations of the client; clienttest is for tests.
var without = []string{"cmd/internal/cli", "sink/client/clienttest"}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "insert:", err)
		os.Exit(1)
	}
}

// run runs a command.
func run(args []string) error {
	operations, err := find(rooms)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "list":
		for _, o := range operations {
			fmt.Printf("%s\t%s\n", o.name, o.at())
		}
		return nil
	case len(args) == 2 && args[0] == "into":
		overlay, err := write(args[1], operations)
		if err == nil {
			fmt.Println(overlay)
		}
		return err
	case len(args) == 2 && args[0] == "check":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		return check(operations, held.Kinds(strings.Split(string(text), "\n")))
	case len(args) == 2 && args[0] == "compare":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		return compare(operations, strings.Split(strings.TrimSpace(string(text)), "\n"))
	}
	return errors.New("usage: insert list | into DIRECTORY | check FILE | compare FILE")
}

// check prints the table, and fails if nothing has happened within an operation.
func check(operations []operation, kinds map[string][]string) error {
	untested := 0
	for _, o := range operations {
		some := slices.DeleteFunc(slices.Clone(kinds[o.name]), func(kind string) bool { return kind == held.Calls })
		slices.Sort(some)
		switch why, left := leftOut[o.name]; {
		case len(some) > 0:
			fmt.Printf("%s: %s\n", o.name, strings.Join(some, ", "))
		case left:
			fmt.Printf("%s: left out: %s\n", o.name, why)
		case len(kinds[o.name]) > 0:
			untested++
			fmt.Printf("%s: NOTHING, although it made more than one call\n", o.name)
		default:
			untested++
			fmt.Printf("%s: NOTHING, as it never made a second call\n", o.name)
		}
	}
	for name := range leftOut {
		if !slices.ContainsFunc(operations, func(o operation) bool { return o.name == name }) {
			return fmt.Errorf("%s is left out, but is no operation", name)
		}
	}
	if untested > 0 {
		return fmt.Errorf("in %d of %d operations (those with NOTHING) nothing has happened between two calls: "+
			"write a test with held.Each",
			untested, len(operations))
	}
	return nil
}

// compare fails unless lines that check has printed are about all operations, and about no others.
func compare(operations []operation, lines []string) error {
	known := map[string]bool{}
	for _, line := range lines {
		name, _, _ := strings.Cut(line, ": ")
		known[name] = true
	}
	var wrong []string
	for _, o := range operations {
		if !known[o.name] {
			wrong = append(wrong, fmt.Sprintf("%s (%s) makes more than one call: write a test with held.Each, and run "+
				"make held", o.name, o.at()))
		}
		delete(known, o.name)
	}
	for name := range known {
		wrong = append(wrong, name+" makes no more than one call, or is gone: run make held")
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// leftOut names the operations that need no test, and says why.
var leftOut = map[string]string{
	"cmd/internal/serve.process.watch":             "it starts what watches, and each of these makes its own calls",
	"processor.copier.run":                         "each of its calls is a copy of its own, which looks at everything anew",
	"processor.monitor.checkReaders":               "it keeps one account after the other, and needs nothing of one for the next: see Readers.Keep",
	"processor/internal/shard.Reader.checkJump":    "what happens between its calls is what the test of Log.CheckJump has: an info from before",
	"processor/internal/shard.outbox.listen":       "it subscribes; its other calls are in functions that run later",
	"processor/internal/streams.Promotion.rewrite": "its second call, changeStream, locks the stream and looks at it anew",
	"processor/internal/streams.Readers.limit":     "its second call repeats the first one without the bound that has no room",
	"processor/internal/streams.lock.release":      "its second call repeats the first one, which was refused, on the same condition",
	"sink/events.Publisher.fit":                    "it asks for the limits once, at the first message that is too large",
	"sink.idMerge.next":                            "it makes one call: only the shard whose document was taken last can have none left",
	"sink.merge.next":                              "it makes one call: only the shard whose entry was taken last can have none left",
	"sink.merger.next":                             "it makes one call: only the shard whose document was taken last can have none left",
	"sink/client.stripe.receive":                   "its calls are alternatives: a stripe that is pinned anew is not sure, and begins nothing",
}

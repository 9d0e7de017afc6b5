// Command teeth shows that the simulation can fail: it breaks lapse in one place at a time,
// and counts how many histories the simulation needs until it finds that out.
//
// Each [tooth] is a small change of lapse that breaks one of its guarantees, such as a
// mistake in a refactoring would. Go compiles lapse with the change (its flag -overlay); the
// files themselves stay as they are. Run it at the root of the module:
//
//	go run ./integration/simulation/teeth            all teeth, as a Markdown table
//	go run ./integration/simulation/teeth -only NAME one of them
//	go run ./integration/simulation/teeth -list      what each of them breaks
//
// It ends with code 1 if the simulation did not find a tooth.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "teeth:", err)
		os.Exit(1)
	}
}

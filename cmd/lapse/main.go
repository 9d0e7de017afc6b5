// Command lapse keeps JSON documents that expire, and publishes an event for each one that
// does. Start with "lapse --help".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed18712806/lapse/cmd/internal/cli"
	"github.com/seed18712806/lapse/cmd/internal/output"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(cli.Run(ctx, os.Args[1:], output.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

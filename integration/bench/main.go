package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed18712806/lapse/integration/bench/internal/rig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := runBench
	args := os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case rig.ChildCommand:
			run, args = rig.RunChild, args[1:]
		case rig.HandCommand:
			run, args = rig.RunHand, args[1:]
		}
	}
	if err := run(ctx, args, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

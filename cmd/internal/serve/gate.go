package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/seed18712806/lapse/processor/health"
)

// gateLongest is for how long clients wait at most while the process starts. A process that takes longer answers why.
const gateLongest = 3 * time.Second

// gate keeps clients waiting while the process starts, which would otherwise answer the first ones with 503: until
// it is open, the embedded NATS server does not listen, and requests wait. It opens once the process is ready, and
// for good.
type gate struct{ opened chan struct{} }

func newGate() *gate { return &gate{make(chan struct{})} }

// run opens the gate when the process is ready, when gateLongest is over, or when ctx is done. listen lets the
// embedded NATS server listen before that; it is nil if there is none.
func (g *gate) run(ctx context.Context, ready func() (string, health.Problems), listen func() error) error {
	defer close(g.opened)
	waiting, cancel := context.WithTimeout(ctx, gateLongest)
	defer cancel()
	untilReady(waiting, ready)
	if listen == nil || ctx.Err() != nil {
		return nil
	}
	return listen()
}

// ready is the state of the process, which is not ready before the gate is open.
func (g *gate) ready(of func() (string, health.Problems)) func() (string, health.Problems) {
	return func() (string, health.Problems) {
		role, problems := of()
		select {
		case <-g.opened:
		default:
			problems.Add(health.Problem{Reason: errors.New("this process is starting"), Advice: "Wait some seconds."})
		}
		return role, problems
	}
}

// untilReady returns when the process is ready, or ctx is done.
func untilReady(ctx context.Context, ready func() (string, health.Problems)) {
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, problems := ready(); problems == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// addresses are where a process listens, or the servers that it is connected to.
type addresses struct {
	NATS  string `json:"nats"`
	Redis string `json:"redis,omitempty"` // not of an embedded Redis that listens nowhere
	HTTP  string `json:"http"`
	Data  string `json:"data,omitempty"` // only with an embedded NATS server
}

// announce waits until the process is ready, then tells the other processes, writes the ready file
// and logs it once.
func (p *process) announce(ctx context.Context, ready func() (string, health.Problems), tell func(context.Context),
	start time.Time) error {
	if untilReady(ctx, ready); ctx.Err() != nil {
		return nil
	}
	tell(ctx) // else lapse status shows for seconds that no shard has applied the log
	if p.opts.ReadyFile != "" {
		if err := writeReadyFile(p.opts.ReadyFile, p.at); err != nil {
			return err
		}
	}
	p.opts.Logger.Info("ready", slog.String("took", time.Since(start).Round(time.Millisecond).String()))
	return nil
}

// withdraw removes the ready file.
func (p *process) withdraw() {
	if p.opts.ReadyFile == "" {
		return
	}
	if err := os.Remove(p.opts.ReadyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		p.opts.Logger.Warn("the ready file could not be removed", slog.Any("error", err))
	}
}

// writeReadyFile writes the addresses as JSON, for scripts that start a process on free
// ports. The file appears complete, by a rename.
func writeReadyFile(path string, a addresses) (err error) {
	content, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("--ready-file: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("--ready-file: %w", err)
		}
	}()
	_, err = f.Write(append(content, '\n'))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

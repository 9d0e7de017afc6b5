package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink"
)

// ErrLogChanged: what is stored was computed from another log.
var ErrLogChanged = errors.New("the log is another one")

// takeOver makes the partition this process's: it reads where the partition
// stands, fences off whoever owned it, and finds out what may have been said. It is
// what happens at the start, and after everything that went wrong.
func (p *partition) takeOver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	state, err := p.load(ctx)
	if err != nil {
		return partitionError(p.id, err)
	}
	info, err := p.logInfo(ctx)
	if err != nil {
		return partitionError(p.id, err)
	}
	if err := checkLog(info, p.log, state.Offset); err != nil {
		return partitionError(p.id, err)
	}
	checkpoint, err := p.checkpoint(ctx)
	if err != nil {
		return partitionError(p.id, err)
	}
	rebuild := p.lacks(state, checkpoint, info.State.LastSeq)
	p.nonce, p.steps = newNonce(), 0
	version := p.nonce + "-0"
	p.looked = time.Now()
	if err := p.store.Take(ctx, state, version, rebuild); err != nil {
		return err
	}
	if err := p.at(afterTake); err != nil {
		return err
	}
	// Whatever the former owner has said was caused by what is in the log by now.
	if info, err = p.logInfo(ctx); err != nil {
		return partitionError(p.id, err)
	}
	p.said = newSaid(checkpoint, info.State.LastSeq)
	p.fence = nil
	if state.Version == "" && info.State.LastSeq == 0 {
		unfenced := p.publisher.Unfenced(p.id) // nobody can have said anything
		p.fence = &unfenced
	}
	if state.Offset >= info.State.LastSeq {
		p.said.pass(state.Watermark)
	}
	p.resume(state, version, rebuild)
	return nil
}

// load loads the state, and judges whether it can be gone on from.
func (p *partition) load(ctx context.Context) (sink.State, error) {
	state, err := p.store.Load(ctx)
	if err == nil && state.Version != "" && state.Log != p.log {
		return state, fmt.Errorf("%w: Redis holds documents of the log that was created at %s, and the log here was created at %s: begin anew with an empty Redis, or restore the log",
			ErrLogChanged, logTime(state.Log), logTime(p.log))
	}
	if err == nil && state.Version != "" {
		err = p.verifyAll(ctx, state)
	}
	if err == nil && state.Version == "" {
		err = p.leftovers(ctx)
	}
	if err == nil && p.damage != nil {
		err = p.damage // which the look at the sizes may not show
	}
	if errors.Is(err, sink.ErrDamaged) {
		p.logger.Error("the partition is damaged, and is rebuilt from the log", slog.Any("error", err))
		p.metrics.rebuilds.Inc()
		if err = p.store.Clear(ctx); err == nil {
			p.damage = nil
			state, err = p.store.Load(ctx)
		}
	}
	if state.Version == "" {
		state.Log = p.log
	}
	return state, err
}

// leftovers refuses keys of a partition that has no state, at the start: nobody
// knows whose they are. Later they are what is left of what was here.
func (p *partition) leftovers(ctx context.Context) error {
	keys, err := p.store.Leftovers(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	if again, err := p.store.Load(ctx); err == nil && again.Version != "" {
		return fmt.Errorf("%w: another process has just made its state", sink.ErrFenced)
	}
	slices.Sort(keys)
	some := strings.Join(keys[:min(3, len(keys))], ", ")
	if p.everTaken {
		return fmt.Errorf("%w: its state is gone, and %d keys are left (%s)", sink.ErrDamaged, len(keys), some)
	}
	return fmt.Errorf("%w: there are %d keys without the state that belongs to them (%s): remove them, and lapse rebuilds what was there from the log; or use another prefix",
		sink.ErrForeign, len(keys), some)
}

// verifyAll verifies every collection that is stored.
func (p *partition) verifyAll(ctx context.Context, state sink.State) error {
	for some := range slices.Chunk(state.Collections, verifyAtOnce) {
		if err := p.store.Verify(ctx, state.Version, some); err != nil {
			return err
		}
	}
	return nil
}

// lacks is the offset below which the partition lacks what it had before; 0 if it
// lacks nothing. A partition without a state lacks all that is in the log.
func (p *partition) lacks(state sink.State, checkpoint Checkpoint, last uint64) uint64 {
	if state.Version == "" {
		return last
	}
	had := max(state.Rebuild, checkpoint.Seq)
	if p.everTaken {
		had = max(had, p.committed)
	}
	if had <= state.Offset {
		return 0
	}
	return had
}

// resume goes on from a state. What was read of the log is kept if the state is
// not older than where the reading began; else the log is read again.
func (p *partition) resume(state sink.State, version string, rebuild uint64) {
	older := !p.everTaken || state.Offset < p.base
	p.version, p.committed, p.offset = version, state.Offset, state.Offset
	p.stamped, p.watermark, p.rebuild = state.Watermark, state.Watermark, rebuild
	p.configs = make(map[string]*collection, len(state.Configs))
	for name, config := range state.Configs {
		p.collection(name).config = config
	}
	for _, name := range state.Collections {
		p.collection(name)
	}
	for _, c := range p.configs {
		c.nextInherit, c.nextOwn = 0, 0 // what is due is to be looked up
	}
	p.soon.set(nil)
	if older {
		p.pending = nil
		p.base = state.Offset
		p.inbox.rewind(state.Offset)
		p.consumer.rewind()
	} else {
		p.inbox.skip(state.Offset)
	}
	if rebuild != 0 && p.everTaken { // at the start it is no news
		p.logger.Warn("the partition is being rebuilt from the log", slog.Uint64("from", state.Offset), slog.Uint64("to", rebuild))
	}
	p.taken, p.everTaken, p.heartbeat = true, true, time.Now()
	p.lacking.Store(rebuild)
	p.applied.Store(state.Offset)
	p.owned.Store(true)
}

// checkpoint reads the partition's checkpoint; it is zero if there is none.
func (p *partition) checkpoint(ctx context.Context) (c Checkpoint, err error) {
	var entry jetstream.KeyValueEntry
	err = p.line.look(ctx, func(ctx context.Context) (err error) {
		entry, err = p.streams.Checkpoints.Get(ctx, checkpointKey(p.id))
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	if err := json.Unmarshal(entry.Value(), &c); err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	if c.Log != p.log {
		return Checkpoint{}, fmt.Errorf("%w: the checkpoint in bucket %s is of a log that was created at %s: remove the bucket and the stream of events to begin anew, or restore the log",
			ErrLogChanged, p.streams.Checkpoints.Bucket(), logTime(c.Log))
	}
	return c, nil
}

// logInfo asks where the log stands.
func (p *partition) logInfo(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = p.line.look(ctx, func(ctx context.Context) (err error) {
		info, err = p.streams.Log.Info(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("look at the log: %w", err)
	}
	return info, err
}

func checkpointKey(partition int) string { return "partition." + strconv.Itoa(partition) }

// logTime writes the identity of a log, which is the instant of its creation.
func logTime(id string) string {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return strconv.Quote(id)
	}
	return time.Unix(0, n).UTC().Format(time.RFC3339Nano)
}

package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// ProblemCheckpoints: checkpoints cannot be stored.
var ProblemCheckpoints = health.Problem{Name: "checkpoints cannot be stored",
	Advice: "Look at the bucket of checkpoints. Events go on; a takeover takes longer."}

const checkpointEvery = time.Second

// Checkpoints is where the checkpoint of a shard is stored.
type Checkpoints struct {
	log   *streams.Log
	shard int
}

// NewCheckpoints makes the place of the checkpoint of a shard with a log.
func NewCheckpoints(log *streams.Log, shard int) *Checkpoints { return &Checkpoints{log, shard} }

// CheckpointKey is the key of a shard's checkpoint.
func CheckpointKey(shard int) string { return "shard." + strconv.Itoa(shard) }

// Load reads the checkpoint; it is zero if there is none.
func (s *Checkpoints) Load(ctx context.Context) (c Checkpoint, err error) {
	value, _, err := s.log.Value(ctx, CheckpointKey(s.shard))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = streams.Gone(err, s.log.Streams.Checkpoints.Bucket())
	}
	if err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	return s.parse(value)
}

// parse returns a stored checkpoint, which has to be of this log. It is zero if none is stored.
func (s *Checkpoints) parse(value []byte) (c Checkpoint, err error) {
	if value == nil {
		return c, nil
	}
	bucket := s.log.Streams.Checkpoints.Bucket()
	if err := wire.CheckStored(fmt.Sprintf("the checkpoint of shard %d in bucket %s", s.shard, bucket),
		value); err != nil {
		return c, err
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	if _, err := store.ParseStamp(c.Stamp); err != nil {
		return Checkpoint{}, fmt.Errorf("the checkpoint of shard %d in bucket %s: %w", s.shard, bucket, err)
	}
	if !s.log.Is(c.Log, c.Seq) {
		return Checkpoint{}, streams.Refuse(streams.ErrLogChanged, "remove the bucket and the stream of events to "+
			"begin anew, or restore the log", "the checkpoint in bucket %s is of a log that was created at %s",
			bucket, streams.FormatID(c.Log))
	}
	return c, nil
}

// Replace stores a checkpoint in place of the present one, unless another owner changes that meanwhile.
func (s *Checkpoints) Replace(ctx context.Context, c Checkpoint) error {
	_, revision, err := s.log.Value(ctx, CheckpointKey(s.shard))
	if err == nil {
		err = s.put(ctx, c, revision)
	}
	if err != nil {
		return fmt.Errorf("store the checkpoint: %w", err)
	}
	return nil
}

// advance stores a checkpoint unless a later one is stored, or one of another log: somebody may have
// begun that one while this process stood still. Nor does it if next does not count any more once it knows
// what is stored: a takeover may have replaced it meanwhile.
func (s *Checkpoints) advance(ctx context.Context, next Checkpoint, counts func() bool) error {
	value, revision, err := s.log.Value(ctx, CheckpointKey(s.shard))
	if err != nil {
		return err
	}
	stored, err := s.parse(value)
	if err != nil || stored.Seq >= next.Seq || !counts() {
		return err
	}
	next.Origin, next.GivenUp, next.Anew = stored.Origin, stored.GivenUp, stored.Anew
	return s.put(ctx, next, revision)
}

// put stores a checkpoint in place of the one at a revision; 0 if there is none.
func (s *Checkpoints) put(ctx context.Context, c Checkpoint, revision uint64) error {
	c.Format, c.Log = wire.Format, s.log.ID()
	value, err := json.Marshal(c)
	if err == nil {
		_, err = s.log.Streams.Checkpoints.Update(ctx, CheckpointKey(s.shard), value, revision)
	}
	return err
}

// Checkpointer stores the checkpoint every second. With it an owner need not read the whole stream of events, nor
// publish again what has aged out of it. Where one was not stored, it reads a longer tail, nothing else.
type Checkpointer struct {
	to        *Checkpoints
	announcer *Announcer
	health    *health.Board
	hook      crash.Hook
	mu        sync.Mutex // held by RunOnce
	stored    *Checkpoint
}

// NewCheckpointer makes a checkpointer, which begins in Run.
func NewCheckpointer(to *Checkpoints, announcer *Announcer, board *health.Board, hook crash.Hook) *Checkpointer {
	return &Checkpointer{to: to, announcer: announcer, health: board, hook: hook}
}

// Run stores checkpoints until ctx is done.
func (c *Checkpointer) Run(ctx context.Context) {
	for backoff.Wait(ctx, checkpointEvery) {
		c.health.Set(ProblemCheckpoints, c.RunOnce(context.WithoutCancel(ctx)))
	}
}

// RunOnce stores the checkpoint if it has moved on.
func (c *Checkpointer) RunOnce(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	point := c.announcer.Settled()
	if point == nil || c.stored != nil && *point == *c.stored {
		return nil
	}
	if err := c.store(ctx, point); err != nil {
		return fmt.Errorf("checkpoint of shard %d: %w", c.to.shard, err)
	}
	c.stored = point
	return nil
}

func (c *Checkpointer) store(ctx context.Context, point *Checkpoint) error {
	if err := c.hook.At(crash.BeforeCheckpoint); err != nil {
		return err
	}
	counts := func() bool { now := c.announcer.Settled(); return now != nil && now.Seq >= point.Seq }
	if err := c.to.advance(ctx, *point, counts); err != nil {
		return err
	}
	return c.hook.At(crash.AfterCheckpoint)
}

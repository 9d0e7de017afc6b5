package announce

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
var ProblemCheckpoints = health.Problem{Name: "checkpoints cannot be stored", Advice: "Look at the bucket of checkpoints. Events go on; a takeover takes longer."}

const checkpointEvery = time.Second

// Checkpoints are the stored checkpoints of all partitions.
type Checkpoints struct{ log *streams.Log }

// NewCheckpoints makes the checkpoints of a log.
func NewCheckpoints(log *streams.Log) *Checkpoints { return &Checkpoints{log} }

func CheckpointKey(partition int) string { return "partition." + strconv.Itoa(partition) }

// Load reads the checkpoint of a partition; it is zero if there is none.
func (s *Checkpoints) Load(ctx context.Context, partition int) (c Checkpoint, err error) {
	value, _, err := s.log.Value(ctx, CheckpointKey(partition))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = streams.Gone(err, s.log.Streams.Checkpoints.Bucket())
	}
	if err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	return s.parse(partition, value)
}

// parse returns a stored checkpoint, which has to be of this log. It is zero if none is stored.
func (s *Checkpoints) parse(partition int, value []byte) (c Checkpoint, err error) {
	if value == nil {
		return c, nil
	}
	bucket := s.log.Streams.Checkpoints.Bucket()
	if err := wire.CheckStored(fmt.Sprintf("the checkpoint of partition %d in bucket %s", partition, bucket), value); err != nil {
		return c, err
	}
	if err := json.Unmarshal(value, &c); err != nil {
		return c, fmt.Errorf("read the checkpoint: %w", err)
	}
	if _, err := store.ParseStamp(c.Stamp); err != nil {
		return Checkpoint{}, fmt.Errorf("the checkpoint of partition %d in bucket %s: %w", partition, bucket, err)
	}
	if !s.log.Is(c.Log, c.Seq) {
		return Checkpoint{}, fmt.Errorf("%w: the checkpoint in bucket %s is of a log that was created at %s: remove the bucket and the stream of events to begin anew, or restore the log",
			streams.ErrLogChanged, bucket, streams.FormatID(c.Log))
	}
	return c, nil
}

// Replace stores a checkpoint in place of the present one, unless another owner changes
// that meanwhile.
func (s *Checkpoints) Replace(ctx context.Context, partition int, c Checkpoint) error {
	_, revision, err := s.log.Value(ctx, CheckpointKey(partition))
	if err == nil {
		err = s.put(ctx, partition, c, revision)
	}
	if err != nil {
		return fmt.Errorf("store the checkpoint: %w", err)
	}
	return nil
}

// advance stores a checkpoint unless a later one is stored, or one of another log: somebody may have
// begun that one while this process stood still. Nor does it if next does not count any more once it knows
// what is stored: a takeover may have replaced it meanwhile.
func (s *Checkpoints) advance(ctx context.Context, partition int, next Checkpoint, counts func() bool) error {
	value, revision, err := s.log.Value(ctx, CheckpointKey(partition))
	if err != nil {
		return err
	}
	stored, err := s.parse(partition, value)
	if err != nil || stored.Seq >= next.Seq || !counts() {
		return err
	}
	next.Origin, next.GivenUp, next.Anew = stored.Origin, stored.GivenUp, stored.Anew
	return s.put(ctx, partition, next, revision)
}

// put stores a checkpoint in place of the one at a revision; 0 if there is none.
func (s *Checkpoints) put(ctx context.Context, partition int, c Checkpoint, revision uint64) error {
	c.Format, c.Log = wire.Format, s.log.ID()
	value, err := json.Marshal(c)
	if err == nil {
		_, err = s.log.Streams.Checkpoints.Update(ctx, CheckpointKey(partition), value, revision)
	}
	return err
}

// Checkpointer stores the checkpoints of all partitions every second. With them an owner need not
// read the whole stream of events, nor publish again what has aged out of it. Where one was not
// stored, it reads a longer tail, nothing else.
type Checkpointer struct {
	to         *Checkpoints
	announcers []*Announcer
	health     *health.Board
	hook       crash.Hook
	stored     []*Checkpoint // per partition
	mu         sync.Mutex    // held by RunOnce
}

// NewCheckpointer makes a checkpointer, which begins in Run.
func NewCheckpointer(to *Checkpoints, announcers []*Announcer, board *health.Board, hook crash.Hook) *Checkpointer {
	return &Checkpointer{to: to, announcers: announcers, health: board, hook: hook, stored: make([]*Checkpoint, len(announcers))}
}

// Run stores checkpoints until ctx is done.
func (c *Checkpointer) Run(ctx context.Context) {
	for backoff.Wait(ctx, checkpointEvery) {
		c.health.Set(ProblemCheckpoints, c.RunOnce(context.WithoutCancel(ctx)))
	}
}

// RunOnce stores the checkpoints that have moved on.
func (c *Checkpointer) RunOnce(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	var first error
	for i, a := range c.announcers {
		point := a.Settled()
		if point == nil || c.stored[i] != nil && *point == *c.stored[i] {
			continue
		}
		if err := c.store(ctx, a, point); err != nil {
			if first == nil {
				first = fmt.Errorf("checkpoint of partition %d: %w", a.partition, err)
			}
			continue
		}
		c.stored[i] = point
	}
	return first
}

func (c *Checkpointer) store(ctx context.Context, a *Announcer, point *Checkpoint) error {
	if err := c.hook.At(crash.BeforeCheckpoint); err != nil {
		return err
	}
	if err := c.to.advance(ctx, a.partition, *point, func() bool { now := a.Settled(); return now != nil && now.Seq >= point.Seq }); err != nil {
		return err
	}
	return c.hook.At(crash.AfterCheckpoint)
}

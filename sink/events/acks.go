package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// maxPending is how many messages may be on their way to the stream, over all
// partitions; what is more waits.
const maxPending = 4096

var errNoAnswer = errors.New("not an answer of JetStream")

// acks publishes messages, and collects the stream's answers. The client library does
// that too, with a future, a timer and a decoded answer for each message; here it is
// for each flight of them.
type acks struct {
	nc    *nats.Conn
	inbox string // what answers' subjects begin with
	sub   *nats.Subscription
	room  *semaphore.Weighted

	mu      sync.Mutex
	last    uint64 // id of a flight
	flights map[uint64]*flight
}

// flight is messages that are on their way together.
type flight struct {
	messages []Message
	left     int        // without an answer
	done     chan error // what became of them
}

func newAcks(nc *nats.Conn) (*acks, error) {
	a := &acks{nc: nc, inbox: nc.NewInbox() + ".", room: semaphore.NewWeighted(maxPending), flights: make(map[uint64]*flight)}
	var err error
	if a.sub, err = nc.Subscribe(a.inbox+"*.*", a.answered); err != nil {
		return nil, err
	}
	return a, a.sub.SetPendingLimits(-1, -1)
}

// publish publishes messages (up to maxPending) without waiting in between, and returns
// when all are stored, or one is not.
func (a *acks) publish(ctx context.Context, messages []Message) error {
	n := int64(len(messages))
	if err := a.room.Acquire(ctx, n); err != nil {
		return fmt.Errorf("publish to %s: %w", messages[0].msg.Subject, context.Cause(ctx))
	}
	defer a.room.Release(n)
	f := &flight{messages: messages, left: len(messages), done: make(chan error, 1)}
	a.mu.Lock()
	a.last++
	id := a.last
	a.flights[id] = f
	a.mu.Unlock()
	defer a.land(id)
	inbox := a.inbox + strconv.FormatUint(id, 10) + "."
	for i, m := range messages {
		m.msg.Reply = inbox + strconv.Itoa(i)
		if err := a.nc.PublishMsg(m.msg); err != nil {
			return fmt.Errorf("publish to %s: %w", m.msg.Subject, err)
		}
	}
	select {
	case err := <-f.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("publish to %s and %d more: %w", messages[0].msg.Subject, n-1, context.Cause(ctx))
	}
}

func (a *acks) land(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.flights, id)
}

// answered takes an answer.
func (a *acks) answered(m *nats.Msg) {
	first, second, _ := strings.Cut(m.Subject[len(a.inbox):], ".")
	id, _ := strconv.ParseUint(first, 10, 64)
	i, _ := strconv.Atoi(second)
	err := answer(m)
	a.mu.Lock()
	defer a.mu.Unlock()
	f, ok := a.flights[id]
	if !ok {
		return // nobody waits any more
	}
	f.left--
	if err != nil && i < len(f.messages) {
		err = fmt.Errorf("publish to %s: %w", f.messages[i].msg.Subject, refused(err))
	}
	if err != nil || f.left == 0 {
		delete(a.flights, id)
		f.done <- err
	}
}

// answer is what the stream answered: nil if the message is stored, or was before.
func answer(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	// Nearly all are of this form, of which nothing more is needed.
	if bytes.HasPrefix(m.Data, []byte(`{"stream":"`)) && !bytes.Contains(m.Data, []byte(`"error"`)) {
		return nil
	}
	var ack struct {
		Stream string
		Error  *jetstream.APIError
	}
	switch err := json.Unmarshal(m.Data, &ack); {
	case err != nil:
		return fmt.Errorf("%w: %w", errNoAnswer, err)
	case ack.Error != nil:
		return ack.Error
	case ack.Stream == "":
		return errNoAnswer
	}
	return nil
}

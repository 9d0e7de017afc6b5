package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// pull reads the messages of a consumer. It requests many of them long before they are
// needed, because a request waits in the server behind the publications under way.
//
// The client library does that too, but it takes a message that has no body and a header
// Status for one of the server's own: a client that publishes one would stop the reading.
// Here, messages of the stream have a reply subject, and those of the server have none.
//
// It can go when the client library tells messages apart by the reply subject too. The clients take every message with
// such a header for a status, by design: see github.com/nats-io/nats-architecture-and-design/pull/54.
type pull struct {
	nc        *nats.Conn
	subject   string // of requests
	maxBytes  int    // of messages, for one request
	inbox     string
	messages  chan *nats.Msg
	sub       *nats.Subscription
	open      int    // messages that were requested, and may still come
	delivered uint64 // by the consumer's own count
	beat      *time.Ticker
	silent    int            // beats since the last message of any kind
	idle      int            // heartbeats of the server since the last message of the log
	read      *atomic.Uint64 // counts the messages

	// Wanted says that the log has more messages: a consumer that brings none is given up.
	Wanted bool
}

const (
	messagesAtOnce = 8192             // in one request; two are open, to read ahead
	expires        = 30 * time.Second // of a request
	heartbeat      = 2 * time.Second  // of the server, while it has nothing to send
	idleBeats      = 3                // heartbeats, if messages are wanted
)

// PullBytes is how much is requested at once, or more where one message is larger.
const PullBytes = 4 << 20

var (
	errSilent = errors.New("nothing is heard of the consumer")
	errIdle   = errors.New("the consumer brings no messages, although there are some")
)

func errLostOnTheWay(sent any, here uint64) error {
	return fmt.Errorf("messages of the log were lost on the way: the consumer has sent %v, and %d are here", sent, here)
}

// newPull begins to read, and counts the messages in read; Close ends it. Each request is for maxBytes.
func newPull(nc *nats.Conn, stream, consumer string, maxBytes int, read *atomic.Uint64) (*pull, error) {
	p := &pull{
		nc:       nc,
		subject:  "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer,
		maxBytes: maxBytes,
		inbox:    nc.NewInbox(),
		read:     read,
		messages: make(chan *nats.Msg, 2*messagesAtOnce+1024), // and those of the server itself
	}
	var err error
	if p.sub, err = nc.ChanSubscribe(p.inbox, p.messages); err != nil {
		return nil, err
	}
	p.beat = time.NewTicker(heartbeat)
	return p, nil
}

// Close ends the reading.
func (p *pull) Close() {
	p.beat.Stop()
	_ = p.sub.Unsubscribe()
}

// Next returns the next message; nil once done is closed.
func (p *pull) Next(done <-chan struct{}) (*nats.Msg, *nats.MsgMetadata, error) {
	for {
		for p.open <= messagesAtOnce {
			if err := p.ask(); err != nil {
				return nil, nil, err
			}
		}
		var m *nats.Msg
		select {
		case m = <-p.messages:
		case <-done:
			return nil, nil, nil
		case <-p.beat.C:
			if p.silent++; p.silent > 2 && len(p.messages) == 0 {
				return nil, nil, errSilent
			}
			continue
		}
		p.silent = 0
		if m.Reply == "" {
			if err := p.status(m); err != nil {
				return nil, nil, err
			}
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, nil, fmt.Errorf("a message of the log: %w", err)
		}
		if p.delivered++; meta.Sequence.Consumer != p.delivered {
			return nil, nil, errLostOnTheWay(meta.Sequence.Consumer, p.delivered)
		}
		p.open--
		p.idle = 0
		p.read.Add(1)
		return m, meta, nil
	}
}

// ask requests messages.
func (p *pull) ask() error {
	request, err := json.Marshal(struct {
		Batch     int           `json:"batch"`
		MaxBytes  int           `json:"max_bytes"`
		Expires   time.Duration `json:"expires"`
		Heartbeat time.Duration `json:"idle_heartbeat"`
	}{messagesAtOnce, p.maxBytes, expires, heartbeat})
	if err != nil {
		return err
	}
	p.open += messagesAtOnce
	return p.nc.PublishRequest(p.subject, p.inbox, request)
}

// status handles a message of the server itself: it is a heartbeat, or tells how much of a
// request will not come, or why nothing will. A message that is larger than a whole request
// would never come, so the next requests have more room.
func (p *pull) status(m *nats.Msg) error {
	const tooLarge = "Message Size Exceeds MaxBytes"
	switch code, text := m.Header.Get("Status"), m.Header.Get("Description"); {
	case code == "100":
		// Without it, the loss of the last message would show only when the next one comes.
		if sent := m.Header.Get("Nats-Last-Consumer"); sent != "" && sent != strconv.FormatUint(p.delivered, 10) {
			return errLostOnTheWay(sent, p.delivered)
		}
		if p.idle++; p.Wanted && p.idle >= idleBeats {
			return errIdle
		}
		return nil
	case code == "408", code == "409" && (text == tooLarge || text == "Batch Completed"):
		left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		if err != nil {
			return fmt.Errorf("the consumer of the log: %s %s: it does not say how much is left", code, text)
		}
		p.open = max(p.open-left, 0)
		if text == tooLarge && left == messagesAtOnce {
			p.maxBytes *= 2
		}
		return nil
	default:
		return fmt.Errorf("the consumer of the log: %s %s", code, text)
	}
}

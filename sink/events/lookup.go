package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Unpublished returns the messages that are newer than the last one that is stored on their
// subject, in their order.
func (p *Publisher) Unpublished(ctx context.Context, messages []Message) ([]Message, error) {
	asked := make(map[string]bool, len(messages))
	var subjects []string
	for _, m := range messages {
		if !asked[m.msg.Subject] {
			asked[m.msg.Subject] = true
			subjects = append(subjects, m.msg.Subject)
		}
	}
	lookUp := p.lastInBulk
	if p.replicas > 1 {
		lookUp = p.lastOfLeader
	}
	last, err := lookUp(ctx, subjects)
	if err != nil {
		return nil, fmt.Errorf("look up which messages are published: %w", err)
	}
	unpublished := make([]Message, 0, len(messages))
	for _, m := range messages {
		if m.order > last[m.msg.Subject] {
			unpublished = append(unpublished, m)
		}
	}
	return unpublished, nil
}

// lastInBulk looks up the order of the last message of each subject, by direct get. For
// 1,024 subjects that takes 0.1 s in one request, and 0.3 s with a request for each.
// nats.go has no call for it; if it gets the one of synadia-io/orbit.go (its pull request
// 10, jetstreamext.GetLastMessagesFor), this function goes.
func (p *Publisher) lastInBulk(ctx context.Context, subjects []string) (map[string]uint64, error) {
	const most = 1024 // subjects that the server accepts in one request
	last := make(map[string]uint64, len(subjects))
	for some := range slices.Chunk(subjects, most) {
		// The server cuts an answer that would have too many bytes: the next request asks
		// for the rest.
		for pending := true; pending; {
			var err error
			known := len(last)
			if pending, err = p.askBulk(ctx, some, last); err != nil {
				return nil, err
			}
			if pending && len(last) == known {
				return nil, fmt.Errorf("%s: the server has more messages, and sends none", p.stream)
			}
			some = slices.DeleteFunc(some, func(s string) bool { _, ok := last[s]; return ok })
		}
	}
	return last, nil
}

// askBulk makes one request and adds the answer to last. pending reports that the server has
// more than it sent.
//
// GetLastMsgsFor of jetstreamext (v0.3.0) cannot be used: it ends without an error at a
// deadline, and hides how many messages are pending. After a short answer, messages that are
// stored would be published again.
func (p *Publisher) askBulk(ctx context.Context, subjects []string, last map[string]uint64) (pending bool, err error) {
	// Without max_bytes, the answer may be as large as the server lets its buffer for a client
	// grow. The server could then close the connection.
	request, err := json.Marshal(map[string]any{"multi_last": subjects, "max_bytes": 4 << 20})
	if err != nil {
		return false, err
	}
	nc := p.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	_ = sub.SetPendingLimits(-1, -1)
	if err := nc.PublishRequest("$JS.API.DIRECT.GET."+p.stream, inbox, request); err != nil {
		return false, err
	}
	before := "0" // sequence of the message before, which each part of the answer repeats
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return false, err
		}
		switch status := m.Header.Get("Status"); {
		case (status == "" || status == "204") && m.Header.Get("Nats-Last-Sequence") != before:
			// The message would be taken for one that is not stored, and published again.
			return false, fmt.Errorf("%s: a part of the answer was lost on the way", p.stream)
		case status == "204": // the end of the answer
			return m.Header.Get("Nats-Num-Pending") != "0", nil
		case status == "404" && m.Header.Get("Description") == "No Results":
			return false, nil
		case status != "" || len(m.Header) == 0:
			return false, fmt.Errorf("%s: %s %s", p.stream, status, m.Header.Get("Description"))
		}
		order, err := storedOrder(m.Header)
		if err != nil {
			return false, fmt.Errorf("message %s of %s: %w", m.Header.Get(jetstream.SequenceHeader), p.stream, err)
		}
		last[m.Header.Get(jetstream.SubjectHeader)] = order
		before = m.Header.Get(jetstream.SequenceHeader)
	}
}

// lastOfLeader asks the stream's leader for the last message of each subject, because a
// replica that is behind may answer a direct get.
func (p *Publisher) lastOfLeader(ctx context.Context, subjects []string) (map[string]uint64, error) {
	const width = 64
	var (
		mu    sync.Mutex
		last  = make(map[string]uint64, len(subjects))
		first error
		wg    sync.WaitGroup
		gate  = make(chan struct{}, width)
	)
	for _, subject := range subjects {
		gate <- struct{}{}
		wg.Go(func() {
			defer func() { <-gate }()
			order, err := p.askLeader(ctx, subject)
			mu.Lock()
			defer mu.Unlock()
			if last[subject] = order; first == nil {
				first = err
			}
		})
	}
	wg.Wait()
	return last, first
}

func (p *Publisher) askLeader(ctx context.Context, subject string) (uint64, error) {
	request, err := json.Marshal(map[string]any{"last_by_subj": subject})
	if err != nil {
		return 0, err
	}
	m, err := p.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+p.stream, request)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Header []byte `json:"hdrs"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, err
	}
	if answer.Error != nil {
		if answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return 0, nil
		}
		return 0, answer.Error
	}
	if answer.Message == nil {
		return 0, errors.New("an answer without a message")
	}
	h, err := nats.DecodeHeadersMsg(answer.Message.Header)
	if err != nil {
		return 0, err
	}
	return storedOrder(h)
}

// storedOrder reads the order of a stored message from its headers.
func storedOrder(h nats.Header) (uint64, error) {
	if seq := h.Get(wire.HeaderSeq); seq != "" {
		return strconv.ParseUint(seq, 10, 64)
	}
	id := h.Get(ceID)
	return strconv.ParseUint(id[strings.LastIndexByte(id, '/')+1:], 10, 64)
}

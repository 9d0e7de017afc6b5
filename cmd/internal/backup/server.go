package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/events"
)

const (
	api = "$JS.API.STREAM."
	// answerTimeout is how long the server may take to answer or to send the next chunk.
	answerTimeout = 30 * time.Second
	chunkSize     = 128 << 10
)

// connect makes the client of JetStream of a connection.
func connect(nc *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(nc, jetstream.WithDefaultTimeout(answerTimeout))
}

// streamInfo asks for a stream; nil if there is none.
func streamInfo(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	s, err := js.Stream(ctx, name)
	switch {
	case err == nil:
		return s.CachedInfo(), nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, nats.ErrNoResponders):
		return nil, errors.New("the NATS server has no JetStream: use the server of lapse")
	}
	return nil, fmt.Errorf("look up stream %s (the user may lack the permission): %w", name, err)
}

// answer is what the server answers.
type answer struct {
	Deliver string              `json:"deliver_subject"`
	State   state               `json:"state"`
	Error   *jetstream.APIError `json:"error"`
}

// ask sends a request that the client library does not have.
func ask(ctx context.Context, nc *nats.Conn, subject string, request any) (a answer, err error) {
	body, ok := request.([]byte)
	if !ok {
		if body, err = json.Marshal(request); err != nil {
			return a, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if err != nil {
		return a, fmt.Errorf("no answer to %s (the user may lack the permission): %w", subject, err)
	}
	if len(m.Data) > 0 {
		err = json.Unmarshal(m.Data, &a)
	}
	if err == nil && a.Error != nil {
		err = a.Error
	}
	return a, err
}

// download lets the server send a stream as it is now, and writes that to w.
func download(ctx context.Context, nc *nats.Conn, name string, consumers bool, w io.Writer) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	request := map[string]any{"deliver_subject": inbox, "no_consumers": !consumers,
		"chunk_size": min(chunkSize, int(nc.MaxPayload())/2)}
	if _, err := ask(ctx, nc, api+"SNAPSHOT."+name, request); err != nil {
		return err
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, answerTimeout)
		m, err := sub.NextMsgWithContext(waiting)
		cancel()
		if err != nil {
			return fmt.Errorf("the server has sent a part of it and no more: %w", err)
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("the server has given up: %s %s", status, m.Header.Get("Description"))
			}
			return nil
		}
		if _, err := w.Write(m.Data); err != nil {
			return err
		}
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				return err
			}
		}
	}
}

// upload makes a stream of an archive, and returns its state.
func upload(ctx context.Context, nc *nats.Conn, config jetstream.StreamConfig, archive io.Reader) (s state, err error) {
	to, err := ask(ctx, nc, api+"RESTORE."+config.Name, map[string]any{"config": config, "state": state{}})
	if err != nil {
		return s, err
	}
	chunk := make([]byte, min(chunkSize, int(nc.MaxPayload())/2))
	for {
		n, err := io.ReadFull(archive, chunk)
		if n > 0 {
			// The answer is empty unless it is an error. What follows the end of the archive has no error.
			if _, err := ask(ctx, nc, to.Deliver, chunk[:n]); err != nil {
				return s, fmt.Errorf("send it to the server: %w", err)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return s, err
		}
	}
	made, err := ask(ctx, nc, to.Deliver, []byte{})
	if err != nil {
		return s, fmt.Errorf("wait until the server has stored it: %w", err)
	}
	return made.State, nil
}

// get reads a message from the leader of a stream; nil if there is none.
func get(ctx context.Context, nc *nats.Conn, stream string, request map[string]any) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := events.GetMessage(ctx, nc, stream, request)
	if err != nil {
		return nil, fmt.Errorf("read a message of %s (the user may lack the permission): %w", stream, err)
	}
	if m == nil {
		return nil, nil
	}
	return &message{m.Seq, m.Time.UnixNano(), m.Subject, m.Header, m.Data}, nil
}

// bucketValue reads a key of the bucket of checkpoints; nil if there is none.
func bucketValue(ctx context.Context, nc *nats.Conn, h Header, key string) (*message, error) {
	m, err := get(ctx, nc, h.Prefix.CheckpointStream(), map[string]any{"last_by_subj": h.Prefix.CheckpointSubject(key)})
	if m != nil && bytes.Contains(m.Header, []byte("KV-Operation:")) {
		m = nil
	}
	return m, err
}

package backup

import (
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

// Info is what the server says of a stream. Its configuration is kept as it came, so that a
// restore has every setting.
type info struct {
	Config  json.RawMessage `json:"config"`
	Created time.Time       `json:"created"`
	Now     time.Time       `json:"ts"`
	State   state           `json:"state"`
	Error   *apiError       `json:"error"`
}

// Config is what lapse has to know of a configuration.
type config struct {
	Metadata map[string]string `json:"metadata"`
	MaxAge   time.Duration     `json:"max_age"`
	Subjects []string          `json:"subjects"`
}

type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// ask sends a request to JetStream, and decodes the answer.
func ask(ctx context.Context, nc *nats.Conn, subject string, request, answer any) error {
	var body []byte
	if request != nil {
		var err error
		if body, err = json.Marshal(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) {
		return errors.New("the NATS server has no JetStream: use the server of lapse")
	}
	if err != nil {
		return fmt.Errorf("no answer to %s (the user may lack the permission): %w", subject, err)
	}
	return json.Unmarshal(m.Data, answer)
}

// streamInfo asks for a stream; nil if there is none.
func streamInfo(ctx context.Context, nc *nats.Conn, name string) (*info, error) {
	var i info
	if err := ask(ctx, nc, api+"INFO."+name, nil, &i); err != nil {
		return nil, err
	}
	switch {
	case i.Error == nil:
		return &i, nil
	case i.Error.Code == int(jetstream.JSErrCodeStreamNotFound):
		return nil, nil
	}
	return nil, fmt.Errorf("stream %s: %w", name, i.Error)
}

// Parse is what lapse has to know of the configuration.
func (i *info) Parse() (c config, err error) {
	return c, json.Unmarshal(i.Config, &c)
}

// download lets the server send a stream as it is now, and writes that to w.
func download(ctx context.Context, nc *nats.Conn, name string, consumers bool, w io.Writer) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	var answer struct {
		Error *apiError `json:"error"`
	}
	request := map[string]any{"deliver_subject": inbox, "no_consumers": !consumers, "chunk_size": min(chunkSize, int(nc.MaxPayload())/2)}
	if err := ask(ctx, nc, api+"SNAPSHOT."+name, request, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return answer.Error
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

// upload makes a stream of an archive.
func upload(ctx context.Context, nc *nats.Conn, name string, config json.RawMessage, archive io.Reader) (*info, error) {
	var answer struct {
		Deliver string    `json:"deliver_subject"`
		Error   *apiError `json:"error"`
	}
	if err := ask(ctx, nc, api+"RESTORE."+name, map[string]any{"config": config, "state": state{}}, &answer); err != nil {
		return nil, err
	}
	if answer.Error != nil {
		return nil, answer.Error
	}
	send := func(chunk []byte) (*nats.Msg, error) {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		return nc.RequestWithContext(ctx, answer.Deliver, chunk)
	}
	chunk := make([]byte, min(chunkSize, int(nc.MaxPayload())/2))
	for {
		n, err := io.ReadFull(archive, chunk)
		if n > 0 {
			m, err := send(chunk[:n])
			if err != nil {
				return nil, fmt.Errorf("send it to the server: %w", err)
			}
			if len(m.Data) > 0 { // it is an error; what follows the end of the archive has none
				return made(m.Data)
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	m, err := send(nil)
	if err != nil {
		return nil, fmt.Errorf("wait until the server has stored it: %w", err)
	}
	return made(m.Data)
}

// made reads the answer to an upload.
func made(answer []byte) (*info, error) {
	var i info
	if err := json.Unmarshal(answer, &i); err != nil {
		return nil, err
	}
	if i.Error != nil {
		return nil, i.Error
	}
	return &i, nil
}

// update changes the configuration of a stream.
func update(ctx context.Context, nc *nats.Conn, name string, config json.RawMessage) error {
	var i info
	if err := ask(ctx, nc, api+"UPDATE."+name, config, &i); err != nil {
		return err
	}
	if i.Error != nil {
		return i.Error
	}
	return nil
}

// remove removes a stream.
func remove(ctx context.Context, nc *nats.Conn, name string) error {
	var answer struct {
		Error *apiError `json:"error"`
	}
	err := ask(ctx, nc, api+"DELETE."+name, nil, &answer)
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	return err
}

// lastOf reads the last message of a subject, from the leader of the stream; nil if there is none.
func lastOf(ctx context.Context, nc *nats.Conn, stream, subject string) (*message, error) {
	return get(ctx, nc, stream, map[string]any{"last_by_subj": subject})
}

// nextOf reads the first message of a subject from a sequence on; nil if there is none.
func nextOf(ctx context.Context, nc *nats.Conn, stream string, from uint64, subject string) (*message, error) {
	return get(ctx, nc, stream, map[string]any{"seq": from, "next_by_subj": subject})
}

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

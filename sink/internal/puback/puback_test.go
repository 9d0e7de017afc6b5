package puback

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestRead reads answers as nats-server 2.15 sends them, and some that JetStream never sends.
func TestRead(t *testing.T) {
	for sent, want := range map[string]Answer{
		`{"stream":"S","seq":7,"duplicate":true}`:      {Stream: "S", Seq: 7, Duplicate: true},
		`{"type":"ack","seq":100,"msgs":100}`:          {Type: "ack", Seq: 100},
		`{"stream":"S","seq":0,"batch":"b","count":0}`: {Stream: "S", Batch: "b"},
		`{"stream":"S"}`: {Stream: "S"}, `{}`: {}, `text`: {},
	} {
		got, err := Read(&nats.Msg{Data: []byte(sent)})
		if answer := want.Seq > 0 || want.Batch != ""; got != want || errors.Is(err, ErrNotAnAnswer) == answer {
			t.Errorf("%s: %+v, %v", sent, got, err)
		}
	}
	refused, err := Read(&nats.Msg{Data: []byte(`{"type":"err","seq":2,"error":{"code":400,"err_code":10071}}`)})
	if err != nil || refused.Type != "err" || refused.Seq != 2 || refused.Error == nil ||
		refused.Error.ErrorCode != 10071 {
		t.Errorf("a refusal: %+v, %v", refused, err)
	}
	if _, err := Read(&nats.Msg{Header: nats.Header{"Status": {"503"}}}); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("nobody listens: %v", err)
	}
	if batch, n := FastMessage(FastReply("_INBOX.x.3", "b", 100, 42, Add)); batch != "b" || n != 42 {
		t.Errorf("message %d of batch %q", n, batch)
	}
}

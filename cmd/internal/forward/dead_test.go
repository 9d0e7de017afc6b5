package forward

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// overtaken is JetStream as one sees it who is overtaken before his first publication.
type overtaken struct {
	jetstream.JetStream
	first func()
}

func (o *overtaken) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if first := o.first; first != nil {
		o.first = nil
		first()
	}
	return o.JetStream.PublishMsg(ctx, m, opts...)
}

// TestF2_TwoGiveUpOneEvent: two processes give the same event up, one between what the other looks up and what it
// stores. There is one dead letter. A letter about another event of the document does not keep it out.
func TestF2_TwoGiveUpOneEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stream, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.DefaultPrefix.DeadStream(), Subjects: []string{wire.DefaultPrefix.Dead("*", "*")},
	})
	if err != nil {
		t.Fatal(err)
	}
	of := func(id string) event {
		return event{nats.Header{"ce-id": {id}, "ce-source": {"/lapse/17/collections/orders"}, "ce-subject": {"1"}}, []byte(`{}`)}
	}
	refused := errors.New("the receiver has refused it")
	one := &deadLetters{r.js, stream, wire.DefaultPrefix, "billing", exchangeWithin}
	slow := &overtaken{JetStream: r.js}
	other := &deadLetters{slow, stream, wire.DefaultPrefix, "billing", exchangeWithin}
	letters := func() (ids []string) {
		if err := one.each(t.Context(), func(l Letter) error { ids = append(ids, l.event.header.Get("ce-id")); return nil }); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	store := func(d *deadLetters, id string) error {
		stored, err := d.store(t.Context(), of(id), &client.Ordered{Seq: 7}, refused, false)
		if err == nil && !stored {
			t.Errorf("the letter of %s is not stored", id)
		}
		return err
	}
	for _, id := range []string{"orders/1/7", "orders/1/9"} {
		before := len(letters())
		slow.first = func() {
			if err := store(one, id); err != nil {
				t.Fatal(err)
			}
		}
		if err := store(other, id); err == nil {
			t.Errorf("%s: it was overtaken, and does not know it", id)
		}
		if err := store(other, id); err != nil { // as the forwarder tries again
			t.Errorf("%s: %v", id, err)
		}
		if got := letters(); len(got) != before+1 || got[before] != id {
			t.Errorf("the dead letters are %v", got)
		}
	}
}

// TestF2_ALetterThatIsNoJSON: somebody has published events whose body is no JSON, or that have no header. Their dead
// letters are listed, with a body that is no JSON in base64, and so are those behind it.
func TestF2_ALetterThatIsNoJSON(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stream, err := r.js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: wire.DefaultPrefix.DeadStream(), Subjects: []string{wire.DefaultPrefix.Dead("*", "*")},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &deadLetters{r.js, stream, wire.DefaultPrefix, "billing", exchangeWithin}
	for _, body := range []string{"no JSON", `{"n":1}`} {
		e := event{nats.Header{"ce-id": {body}, "ce-source": {"/lapse/17/collections/orders"}, "ce-subject": {"1"}}, []byte(body)}
		if _, err := d.store(t.Context(), e, &client.Ordered{Seq: 7}, errors.New("refused"), false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.store(t.Context(), event{data: []byte(`{"n":2}`)}, &client.Ordered{Seq: 8}, errors.New("refused"),
		false); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := d.each(t.Context(), func(l Letter) error {
		var has struct {
			Data   json.RawMessage `json:"data"`
			Base64 []byte          `json:"data_base64"`
		}
		err := json.Unmarshal(l.Event, &has)
		got = append(got, string(has.Data)+string(has.Base64))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"no JSON", `{"n":1}`, `{"n":2}`}) {
		t.Errorf("the bodies of the dead letters are %q", got)
	}
}

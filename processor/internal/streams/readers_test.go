package streams

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// readersAccounts has what deploy/nats/accounts.conf has for the account READERS, and the client without a user is in
// LAPSE.
const readersAccounts = `
no_auth_user: lapse
accounts {
  LAPSE {
    jetstream: enabled
    users: [ { user: lapse, password: x } ]
    exports: [
      { stream: "lapse.readers.READERS", accounts: [READERS] }
      { service: "$JS.API.CONSUMER.RESET.LAPSE_EVENTS.readers-READERS", accounts: [READERS] }
      { service: "$JS.FC.LAPSE_EVENTS.readers-READERS.*", accounts: [READERS] }
    ]
    imports: [ { service: { account: READERS, subject: "$JS.API.>" }, to: "$JS.READERS.API.>" } ]
  }
  READERS {
    jetstream { max_consumers: 10 }
    exports: [ { service: "$JS.API.>", accounts: [LAPSE], response_type: stream } ]
    imports: [
      { stream: { account: LAPSE, subject: "lapse.readers.READERS" } }
      { service: { account: LAPSE, subject: "$JS.API.CONSUMER.RESET.LAPSE_EVENTS.readers-READERS" }, to: "$JS.LAPSE.API.CONSUMER.RESET.LAPSE_EVENTS.readers-READERS" }
      { service: { account: LAPSE, subject: "$JS.FC.LAPSE_EVENTS.readers-READERS.*" } }
    ]
  }
}
`

// TestReaders: the mirror has the sequences of the stream of events from its first message on, follows its limits, and
// goes on behind its last message without its consumer. What a person has to do is said: too many consumers, and a
// stream of events that is another one; after the mirror was removed it is made anew, from the first message on.
func TestReaders(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{Config: readersAccounts})
	o := options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReaders(js, o.Prefix, "READERS", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		t.Helper()
		for i := range n {
			if _, err := js.Publish(t.Context(), o.Prefix.Expired("orders", fmt.Sprint(i)), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
	}
	keep := func(want string) {
		t.Helper()
		if err := r.Keep(t.Context()); err == nil && want != "" || err != nil &&
			(want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("keep: %v, want %q", err, want)
		}
	}
	equal := func() {
		t.Helper()
		untilMirror(t, "the mirror has the same messages", func(ctx context.Context) error {
			original, err := js.Stream(ctx, o.Prefix.EventsStream())
			if err != nil {
				return err
			}
			mirror, err := r.there.Stream(ctx, o.Prefix.EventsStream())
			if err != nil {
				return err
			}
			if have, want := mirror.CachedInfo().State, original.CachedInfo().State; have.FirstSeq != want.FirstSeq ||
				have.LastSeq != want.LastSeq || have.Msgs != want.Msgs || !have.LastTime.Equal(want.LastTime) {
				return fmt.Errorf("%+v, want %+v", have, want)
			}
			return nil
		})
	}
	publish(20)
	if err := s.Events.Purge(t.Context(), jetstream.WithPurgeSequence(10)); err != nil {
		t.Fatal(err)
	}
	keep("")
	equal()

	o.EventsMaxAge = new(time.Duration)
	*o.EventsMaxAge = time.Hour
	if _, err = Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), o.Prefix.EventsStream(), r.consumer()); err != nil {
		t.Fatal(err)
	}
	publish(5)
	keep("")
	equal()
	mirror, err := r.there.Stream(t.Context(), o.Prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if age := mirror.CachedInfo().Config.MaxAge; age != time.Hour {
		t.Errorf("the mirror keeps events for %s", age)
	}
	for i := range 8 {
		if _, err := mirror.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Name: fmt.Sprint(i),
			InactiveThreshold: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	keep("has 8 consumers, of 10")

	if err := js.DeleteStream(t.Context(), o.Prefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	if _, err = Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	publish(2)
	keep("has other messages")
	publish(50)
	keep("has other messages")
	if err := r.there.DeleteStream(t.Context(), o.Prefix.EventsStream()); err != nil {
		t.Fatal(err)
	}
	keep("")
	equal()
}

// TestReadersLack: a message that the mirror lacks, and the stream of events has, is named; what lapse has removed of
// the stream of events is none.
func TestReadersLack(t *testing.T) {
	t.Parallel()
	js := natstest.Connect(t, natstest.Options{Config: readersAccounts})
	o := options()
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReaders(js, wire.DefaultPrefix, "READERS", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 9 {
		if _, err := js.Publish(t.Context(), o.Prefix.Expired("orders", fmt.Sprint(i)), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Events.DeleteMsg(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	var mirror jetstream.Stream
	untilMirror(t, "the mirror has the messages", func(ctx context.Context) error {
		if mirror, err = r.there.Stream(ctx, o.Prefix.EventsStream()); err == nil && mirror.CachedInfo().State.LastSeq < 9 {
			err = fmt.Errorf("%+v", mirror.CachedInfo().State)
		}
		return err
	})
	if err := r.Keep(t.Context()); err != nil {
		t.Error(err)
	}
	if err := mirror.DeleteMsg(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	if err := r.Keep(t.Context()); err == nil || !strings.Contains(err.Error(), "lacks message 5") {
		t.Errorf("the mirror lacks a message: %v", err)
	}
}

func untilMirror(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	if err := poll.Until(t.Context(), time.Minute, try); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

// openOn opens a collection on which TTL is on.
func openOn(t *testing.T, l *clienttest.Lapse, name string) *client.Collection[Order] {
	t.Helper()
	o, err := client.Open[Order](l.Client(), name)
	if err == nil {
		_, err = o.Configure(t.Context(), client.Config{DefaultTTL: client.Never})
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// beside is a target that the stream of events stores under the subject of mail.send.
func beside() string {
	for i := 0; ; i++ {
		if target := fmt.Sprint("mail.b",
			i); wire.DefaultPrefix.StoredDue(target) == wire.DefaultPrefix.StoredDue("mail.send") {
			return target
		}
	}
}

// TestG3_OnDue: each message comes once, at its time; not if it was cancelled, at the new time if it was
// moved. Those of other collections, and to other targets, do not come; an error comes back.
//
// Goes red if OnDue does not compare the collection or the target of a message, or if Schedule forgets
// the target or the time.
func TestG3_OnDue(t *testing.T) {
	t.Parallel()
	l := clienttest.Start(t, clienttest.OpenCollections)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	mail, foreign := openOn(t, l, "mail"), openOn(t, l, "foreign")
	at := l.Now().Add(time.Hour).Truncate(time.Second)
	schedule := func(o *client.Collection[Order], target string, at time.Time, item string,
		options ...client.Option) client.Scheduled {
		t.Helper()
		m, err := o.Schedule(ctx, target, at, Order{Item: item}, options...)
		if err != nil || m.Collection != o.Name() || m.ID == "" || !m.Created || !m.ExpiresAt.Equal(at) || m.Warning != "" {
			t.Fatalf("%+v, %v", m, err)
		}
		return m
	}
	schedule(foreign, "mail.send", at, "foreign")
	schedule(mail, beside(), at, "beside")
	cancelled := schedule(mail, "mail.send", at, "cancelled")
	moved := schedule(mail, "mail.send", at, "moved")
	given := schedule(mail, "mail.send", at, "given", client.ID("a.b"), client.Traceparent(trace))
	if given.ID != "a.b" || cancelled.ID == moved.ID {
		t.Errorf("ids %q, %q and %q", given.ID, cancelled.ID, moved.ID)
	}
	_, err := mail.Schedule(ctx, "mail.send", at, Order{}, client.ID("a.b"))
	wantIs(t, err, client.ErrExists)
	if _, err := mail.Delete(ctx, cancelled.ID); err != nil {
		t.Fatal(err)
	}
	later, err := mail.Touch(ctx, moved.ID, client.ExpiresAt(at.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for doc, err := range mail.List(ctx, client.ByDeadline()) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, doc.Target+" "+doc.Value.Item)
	}
	slices.Sort(listed[:2]) // they have the same deadline
	if diff := cmp.Diff([]string{beside() + " beside", "mail.send given", "mail.send moved"}, listed); diff != "" {
		t.Errorf("the list (-want +got):\n%s", diff)
	}
	if doc, err := mail.Get(ctx, "a.b"); err != nil || doc.Target != "mail.send" {
		t.Errorf("%+v, %v", doc, err)
	}

	l.Advance(2 * time.Hour)
	var got []client.Due[Order]
	err = mail.OnDue(ctx, "mail.send", "mailer", func(_ context.Context, d client.Due[Order]) error {
		got = append(got, d)
		switch {
		case d.ID == "a.b" && d.Attempt == 1:
			return errors.New("the mail server does not answer")
		case len(got) == 3:
			stop()
		}
		return nil
	}, fromTheFirst, client.Concurrency(1), client.Backoff(10*time.Millisecond, 20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(got, func(a, b client.Due[Order]) int { return a.DueAt.Compare(b.DueAt) })
	first := client.Due[Order]{Collection: "mail", ID: "a.b", Target: "mail.send", Value: Order{Item: "given"},
		Etag: given.Etag, DueAt: at, Traceparent: trace, Attempt: 1}
	second, last := first, client.Due[Order]{Collection: "mail", ID: moved.ID, Target: "mail.send",
		Value: Order{Item: "moved"}, Etag: later.Etag, DueAt: at.Add(time.Hour), Attempt: 1}
	second.Attempt = 2
	if diff := cmp.Diff([]client.Due[Order]{first, second, last}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// What was passed over is done too.
	harness.Until(t, limit, "all messages are acknowledged", func(ctx context.Context) error {
		stream, err := natstest.JetStream(t, l.Client().Conn()).Stream(ctx, "LAPSE_EVENTS")
		if err != nil {
			return err
		}
		consumer, err := stream.Consumer(ctx, "mailer")
		if err != nil {
			return err
		}
		if info := consumer.CachedInfo(); info.NumAckPending != 0 || info.NumPending != 0 {
			return fmt.Errorf("%+v", info)
		}
		return nil
	})
	testDueNames(t, mail, foreign)
}

// testDueNames: the name of a consumer is for one target and one collection, because the consumer
// acknowledges the messages that it passes over.
func testDueNames(t *testing.T, mail, foreign *client.Collection[Order]) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	err := mail.OnDue(ctx, beside(), "mailer", nil)
	wantIs(t, err, client.ErrInvalid)
	wantError(t, err, "is for [lapse-target mail.send] instead of [lapse-target "+beside()+"]")
	err = foreign.OnDue(ctx, "mail.send", "mailer", nil)
	wantIs(t, err, client.ErrInvalid)
	wantError(t, err, "is for [lapse-collection mail] instead of [lapse-collection foreign]")
	err = mail.OnDue(ctx, "mail.*x", "other", nil)
	wantIs(t, err, client.ErrInvalid)
	wantError(t, err, `filter "mail.*x" of targets is not valid`)
}

// TestSchedule: what cannot be delivered is an error.
func TestSchedule(t *testing.T) {
	t.Parallel()
	l, fresh := open[Order](t, "fresh")
	ctx, at := t.Context(), l.Now().Add(time.Hour)
	m, err := fresh.Schedule(ctx, "a", at, Order{})
	wantIs(t, err, client.ErrRejected)
	wantError(t, err, "nothing can ever be delivered to a")
	if errors.Is(err, client.ErrExists) {
		t.Errorf("where TTL is off: %v", err)
	}
	if _, err := fresh.Configure(ctx, client.Config{DefaultTTL: client.Never}); err != nil {
		t.Fatal(err)
	}
	if m, err = fresh.Schedule(ctx, "a", at, Order{}); err != nil || m.ExpiresAt.IsZero() {
		t.Errorf("where TTL is on: %+v, %v", m, err)
	}
	_, err = openOn(t, l, "on").Schedule(ctx, "a", l.Now().Add(-time.Hour), Order{})
	wantIs(t, err, client.ErrRejected)
	invalid := func(_ any, err error) {
		t.Helper()
		wantIs(t, err, client.ErrInvalid)
	}
	invalid(fresh.Schedule(ctx, "a..b", at, Order{}))
	invalid(fresh.Schedule(ctx, "a", at, Order{}, client.ID("")))
	invalid(fresh.Schedule(ctx, "a", at, Order{}, client.TTL(time.Hour)))
	invalid(fresh.Schedule(ctx, "a", at, Order{}, client.MessageID("m")))
	invalid(fresh.Upsert(ctx, "1", Order{}, client.ID("1")))
	invalid(fresh.Touch(ctx, "1", client.Target("a")))
	invalid(fresh.Configure(ctx, client.Config{}, client.Target("a")))
	invalid(fresh.Batch(ctx, nil, client.Target("a")))
	batch, err := fresh.Batch(ctx, nil)
	if err == nil {
		err = errors.Join(batch.Replace(ctx, m.ID, Order{Item: "tea"}, client.Target("b")), batch.Close(ctx))
	}
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := fresh.Get(ctx, m.ID); err != nil || doc.Target != "b" {
		t.Errorf("%+v, %v", doc, err)
	}
	if m, err = fresh.Schedule(ctx, "a", at, Order{}, client.ID("1"), client.MessageID("m"),
		client.AckOnly()); err != nil || m.ID != "1" || m.Seq == 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestWatchDue: a watch of targets has due messages alone, of the targets and the collection that it
// asks for.
func TestWatchDue(t *testing.T) {
	t.Parallel()
	l := clienttest.Start(t, clienttest.OpenCollections)
	mail, foreign := openOn(t, l, "mail"), openOn(t, l, "foreign")
	at := l.Now().Add(time.Hour)
	for i, c := range []struct {
		o      *client.Collection[Order]
		target string
	}{{mail, "mail.send"}, {mail, beside()}, {foreign, "mail.send"}, {mail, "mail"}, {mail, "mail.send.now"}} {
		if _, err := c.o.Schedule(t.Context(), c.target, at.Add(time.Duration(i)*time.Second), Order{Item: "tea"},
			client.ID(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mail.Upsert(t.Context(), "expires", Order{}, client.TTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	l.Advance(2 * time.Hour)
	for i, last := range []string{"mail.send", "mail"} { // which come after all others
		if _, err := mail.Schedule(t.Context(), last, l.Now().Add(time.Hour), Order{Item: "tea"}, client.ID(fmt.Sprint("last",
			i))); err != nil {
			t.Fatal(err)
		}
	}
	l.Advance(2 * time.Hour)
	for _, c := range []struct {
		opts client.WatchOptions
		want []string
	}{
		{client.WatchOptions{Due: "mail.send"}, []string{"foreign/2 mail.send", "mail/0 mail.send", "mail/last0 mail.send"}},
		{client.WatchOptions{Due: "mail.*"}, []string{"foreign/2 mail.send", "mail/0 mail.send", "mail/1 " + beside(),
			"mail/last0 mail.send"}},
		{client.WatchOptions{Due: "mail.>", Collection: "mail"}, []string{"mail/0 mail.send", "mail/1 " + beside(),
			"mail/4 mail.send.now", "mail/last0 mail.send"}},
		{client.WatchOptions{Due: "mail.>", ID: "last0"}, []string{"mail/last0 mail.send"}},
		{client.WatchOptions{Due: "*"}, []string{"mail/3 mail", "mail/last1 mail"}},
	} {
		c.opts.Since = new(time.Unix(0, 0))
		ctx, stop := context.WithTimeout(t.Context(), limit)
		var got []string
		err := l.Client().Watch(ctx, c.opts, func(n client.Notification) error {
			if string(n.Due.Document) != `{"item":"tea"}` {
				t.Errorf("document %s", n.Due.Document)
			}
			if got = append(got, n.Due.Collection+"/"+n.Due.ID+" "+n.Due.Target); strings.HasPrefix(n.Due.ID, "last") {
				stop()
			}
			return nil
		})
		stop()
		slices.Sort(got) // those that are due together come in any order
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%+v: %v (-want +got):\n%s", c.opts, err, diff)
		}
	}
	wantIs(t, l.Client().Watch(t.Context(), client.WatchOptions{Due: "a b"}, nil), client.ErrInvalid)
}

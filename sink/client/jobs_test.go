package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// Session is the document type of an example.
type Session struct {
	User string `json:"user"`
}

// A session ends after 30 minutes in which nobody reads it, and after 12 hours whatever is done.
func Example_sessions() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	sessions, err := client.Open[Session](c, "sessions")
	check(err)
	_, err = sessions.Configure(ctx, client.Config{DefaultTTL: client.Never, SlideOnRead: true})
	check(err)
	for _, id := range []string{"used", "idle"} {
		_, err = sessions.Create(ctx, id, Session{User: "u1"}, client.TTL(30*time.Minute), client.NotAfter(l.Now().Add(12*time.Hour)))
		check(err)
	}

	for range 51 { // somebody reads it every 14 minutes
		l.Advance(14 * time.Minute)
		_, err = sessions.Get(ctx, "used")
		check(err)
	}
	_, err = sessions.Get(ctx, "idle")
	fmt.Println("idle, not found:", errors.Is(err, client.ErrNotFound))
	l.Advance(6 * time.Minute)
	_, err = sessions.Get(ctx, "used")
	fmt.Println("after 12 hours, not found:", errors.Is(err, client.ErrNotFound))

	// Output:
	// idle, not found: true
	// after 12 hours, not found: true
}

// Hold is the document type of an example.
type Hold struct {
	Customer string `json:"customer"`
	Note     string `json:"note,omitempty"`
}

// A seat is held until 18:00. Five minutes before, there is a reminder. Whoever may only patch and touch
// holds cannot prolong one: to let nobody else create or replace them, give customers the permission to
// publish to lapse.write.patch.holds.* alone.
func Example_seatHolds() {
	l, c := startLapse()
	defer l.Close()
	ctx := context.Background()
	holds, err := client.Open[Hold](c, "holds")
	check(err)
	_, err = holds.Configure(ctx, client.Config{DefaultTTL: client.Never, WarnBefore: []time.Duration{5 * time.Minute}})
	check(err)
	at18 := l.Now().Add(6 * time.Hour)
	created, err := holds.Create(ctx, "A7", Hold{Customer: "c1"}, client.TTL(24*time.Hour), client.NotAfter(at18))
	check(err)

	edited, err := holds.Patch(ctx, "A7", json.RawMessage(`{"note":"aisle","ttl":172800}`))
	check(err)
	fmt.Println("an edit moves the deadline:", !edited.ExpiresAt.Equal(created.ExpiresAt))
	_, err = holds.Touch(ctx, "A7", client.ExpiresAt(at18.Add(time.Hour)))
	fmt.Println("another deadline is refused:", errors.Is(err, client.ErrRejected))

	nc, err := nats.Connect(l.URL())
	check(err)
	defer nc.Close()
	reminders, err := nc.SubscribeSync("lapse.expiring.holds.*")
	check(err)
	check(nc.Flush())
	l.Advance(5*time.Hour + 55*time.Minute)
	msg, err := reminders.NextMsg(10 * time.Second)
	check(err)
	var reminder wire.Expiring
	check(json.Unmarshal(msg.Data, &reminder))
	fmt.Println("reminder:", reminder.ID, "ends in", time.Duration(reminder.Before)*time.Second)
	l.Advance(5 * time.Minute)
	_, err = holds.Get(ctx, "A7")
	fmt.Println("at 18:00, not found:", errors.Is(err, client.ErrNotFound))

	// Output:
	// an edit moves the deadline: false
	// another deadline is refused: true
	// reminder: A7 ends in 5m0s
	// at 18:00, not found: true
}

// Personal data is kept for 30 days, and not longer. The event proves that it has expired, and does not
// have it.
func Example_retention() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	const days = 24 * time.Hour
	visitors, err := client.Open[map[string]any](c, "visitors")
	check(err)
	_, err = visitors.Configure(ctx, client.Config{DefaultTTL: 30 * days, MaxTTL: 30 * days, NoEventBody: true})
	check(err)
	_, err = visitors.Create(ctx, "v1", map[string]any{"name": "Ada"})
	check(err)
	_, err = visitors.Create(ctx, "v2", map[string]any{"name": "Bo"}, client.TTL(31*days))
	fmt.Println("for longer, refused:", errors.Is(err, client.ErrRejected))

	l.Advance(30 * days)
	err = visitors.OnExpired(ctx, "proof", func(_ context.Context, e client.Expired[map[string]any]) error {
		fmt.Println("proof:", e.ID, "expired after", e.TTL, "with its data:", !e.Omitted)
		done() // ends OnExpired
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// for longer, refused: true
	// proof: v1 expired after 720h0m0s with its data: false
}

// Mail is the document type of an example.
type Mail struct {
	To string `json:"to"`
}

// Mails are sent at their time. Until then each is a document, so it can be read, moved and cancelled.
func Example_messages() {
	l, c := startLapse()
	defer l.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()
	mails, err := client.Open[Mail](c, "mail")
	check(err)
	_, err = mails.Configure(ctx, client.Config{DefaultTTL: client.Never}) // once
	check(err)
	at18 := l.Now().Add(6 * time.Hour)
	for _, to := range []string{"ada@example.com", "bo@example.com", "cy@example.com"} {
		_, err = mails.Schedule(ctx, "mail.send", at18, Mail{To: to}, client.ID(to))
		check(err)
	}
	_, err = mails.Delete(ctx, "bo@example.com") // cancel
	check(err)
	_, err = mails.Touch(ctx, "cy@example.com", client.ExpiresAt(at18.Add(time.Hour))) // move
	check(err)
	for mail, err := range mails.List(ctx, client.ByDeadline()) {
		check(err)
		fmt.Println("to", mail.Value.To, "in", mail.ExpiresAt.Sub(at18.Add(-6*time.Hour)).Round(time.Hour))
	}

	l.Advance(6 * time.Hour)
	// Run it in as many processes as you like: each message goes to one of them.
	err = mails.OnDue(ctx, "mail.send", "mailer", func(_ context.Context, m client.Due[Mail]) error {
		fmt.Println("send to", m.Value.To)
		done() // ends OnDue
		return nil
	}, client.Since(time.Time{}))
	check(err)

	// Output:
	// to ada@example.com in 6h0m0s
	// to cy@example.com in 7h0m0s
	// send to ada@example.com
}

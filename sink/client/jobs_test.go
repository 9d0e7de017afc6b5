package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink/client"
)

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

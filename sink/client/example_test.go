package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

func Example() {
	url, stop := startLapse() // or "lapse serve"
	defer stop()

	const prefix = wire.DefaultPrefix
	c, err := client.Connect(client.Options{Server: url, Timeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ctx, done := context.WithCancel(context.Background())
	defer done()

	write := func(subject, body string) {
		result, err := c.Write(ctx, client.Message{Subject: subject, Body: []byte(body)})
		if err != nil {
			log.Fatal(err) // nobody answered: lapse may or may not have the message
		}
		if result.Outcome.Error != "" {
			log.Fatal(result.Outcome.Error) // lapse refused it
		}
		fmt.Println("status", result.Outcome.Status)
	}
	// A document of this collection expires an hour after its last write.
	write(prefix.Config("orders"), `{"defaultTtl":3600}`)
	write(prefix.Write(wire.Upsert, "orders", "42"), `{"item":"tea"}`)

	doc, err := c.Get(ctx, "orders", "42")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("document %s\n", doc.Document)

	// A new default counts for existing documents too: this one expires within a second.
	write(prefix.Config("orders"), `{"defaultTtl":1}`)
	since := time.Now().Add(-time.Minute)
	err = c.Watch(ctx, client.WatchOptions{Collection: "orders", Since: &since}, func(n client.Notification) error {
		fmt.Printf("expired %s/%s %s\n", n.Expired.Collection, n.Expired.ID, n.Expired.Document)
		done() // ends the watch
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// status 200
	// status 201
	// document {"item":"tea"}
	// status 200
	// expired orders/42 {"item":"tea"}
}

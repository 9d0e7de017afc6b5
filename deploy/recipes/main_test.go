// Package recipes_test has the programs of the recipes: what each page shows is a part of the example of its name.
package recipes_test

import (
	"log"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// startLapse runs a lapse for an example, and connects to it: elsewhere that is
//
//	c, err := client.Connect(client.Options{Server: "nats://127.0.0.1:4222"})
func startLapse() (l *clienttest.Lapse, c *client.Client) {
	l, err := clienttest.New()
	check(err)
	return l, l.Client()
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

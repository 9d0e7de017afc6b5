package elsewhere

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// natsTool stands in for the command line tool of NATS: it knows "req SUBJECT BODY", "pub SUBJECT BODY" and
// "sub SUBJECT", which ends by an interrupt or after --count messages. Of the reports, it only asks whether JetStream
// answers.
func natsTool(args []string) int {
	verb, flags := args[0], flag.NewFlagSet("nats", flag.ContinueOnError)
	count := flags.Int("count", 0, "messages")
	inbox := flags.String("inbox-prefix", "", "prefix of inboxes")
	var rest []string
	for args = args[1:]; len(args) > 0; {
		if err := flags.Parse(args); err != nil {
			return 2
		}
		if args = flags.Args(); len(args) > 0 {
			rest, args = append(rest, args[0]), args[1:]
		}
	}
	options := []nats.Option{nats.MaxReconnects(0)}
	if *inbox != "" {
		options = append(options, nats.CustomInboxPrefix(*inbox))
	}
	if err := natsCommand(verb, rest, *count, options); err != nil {
		fmt.Fprintln(os.Stderr, "nats:", err)
		return 1
	}
	return 0
}

func natsCommand(verb string, args []string, count int, options []nats.Option) error {
	nc, err := nats.Connect(os.Getenv("LAPSE_SERVER"), options...)
	if err != nil {
		return err
	}
	defer nc.Close()
	switch {
	case verb == "stream" && slices.Equal(args, []string{"report"}),
		verb == "server" && slices.Equal(args, []string{"report", "jetstream"}):
		js, err := nc.JetStream()
		if err == nil {
			_, err = js.AccountInfo()
		}
		return err
	case verb == "req" && len(args) == 2:
		reply, err := nc.Request(args[0], []byte(args[1]), 30*time.Second)
		if err != nil {
			return err
		}
		fmt.Println(string(reply.Data))
		return nil
	case verb == "pub" && len(args) == 2:
		if err := nc.Publish(args[0], []byte(args[1])); err != nil {
			return err
		}
		return nc.Flush()
	case verb == "sub" && len(args) == 1:
		sub, err := nc.SubscribeSync(args[0])
		for n := 0; err == nil && (count == 0 || n < count); n++ {
			var msg *nats.Msg
			if msg, err = sub.NextMsg(time.Minute); err == nil {
				fmt.Println(msg.Subject)
				fmt.Println(string(msg.Data))
			}
		}
		return err
	}
	return fmt.Errorf("the stand-in does not know %s %q", verb, args)
}

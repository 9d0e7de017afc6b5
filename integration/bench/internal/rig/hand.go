package rig

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
)

// HandCommand is the argument that makes this program run the consumer that is written by hand.
const HandCommand = "by-hand"

const (
	handStream = "DOCS"
	handFlush  = 10 * time.Millisecond // how long messages wait until a pipeline is full
	handBuffer = 2000                  // messages that the consumer has asked for
)

// deadlinesOf is the key of the sorted set with the deadlines of a collection. Its documents are in a hash
// with the name of the collection.
func deadlinesOf(collection string) string { return collection + ":deadlines" }

// Hand is what a person would write by hand for the job of lapse, without its guarantees: a stream, and one
// consumer that acknowledges all up to a message once it has stored 500 of them in Redis.
type Hand struct {
	*Process // the consumer
	NATS     *NATS
	Redis    *Redis
	rig      *Rig
}

// StartHand starts the servers and the consumer.
func (r *Rig) StartHand(ctx context.Context) (*Hand, error) {
	h := &Hand{rig: r}
	err := func() (err error) {
		if h.NATS, err = r.StartNATS(ctx); err != nil {
			return err
		}
		if h.Redis, err = r.StartRedis(ctx); err != nil {
			return err
		}
		_, err = h.NATS.JS.CreateStream(ctx, jetstream.StreamConfig{
			Name: handStream, Subjects: []string{"docs.*.*"}, Storage: jetstream.FileStorage, AllowBatchPublish: true,
		})
		if err != nil {
			return err
		}
		dir, err := r.Folder("by-hand")
		if err != nil {
			return err
		}
		binary, err := os.Executable()
		if err != nil {
			return err
		}
		h.Process, err = start("the consumer", dir, binary, HandCommand, "--nats", h.NATS.url, "--redis", h.Redis.addr)
		return err
	}()
	if err != nil {
		h.Stop()
		return nil, err
	}
	return h, nil
}

// Stop stops the consumer and the servers.
func (h *Hand) Stop() {
	h.Process.Stop()
	if h.Redis != nil {
		h.Redis.Stop()
	}
	if h.NATS != nil {
		h.NATS.Stop()
	}
}

// Usage notes the CPU time of the consumer and its servers, see [Rig.Usage].
func (h *Hand) Usage() func(what string) []time.Duration {
	return h.rig.Usage(h.Process, h.NATS.Process, h.Redis.Process)
}

// HandMessage returns the message that writes a document of a collection.
func HandMessage(ld load.Load, collection string, i int) *nats.Msg {
	return &nats.Msg{Subject: "docs." + collection + "." + ld.ID(i), Data: ld.Body(i)}
}

// Stored waits until a collection has so many documents, and a deadline for each.
func (h *Hand) Stored(ctx context.Context, collection string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		documents, err := h.Redis.Client.HLen(ctx, collection).Result()
		if err != nil {
			return err
		}
		if documents == int64(n) {
			deadlines, err := h.Redis.Client.ZCard(ctx, deadlinesOf(collection)).Result()
			if err != nil || deadlines == int64(n) {
				return err
			}
		}
		select {
		case <-h.done:
			return errors.New("the consumer has ended")
		case <-ctx.Done():
			return fmt.Errorf("%s has %d of %d documents: %w", collection, documents, n, ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// Verify reads one document in a hundred and compares it.
func (h *Hand) Verify(ctx context.Context, ld load.Load) error {
	for i := 0; i < ld.N; i += 100 {
		got, err := h.Redis.Client.HGet(ctx, Orders, ld.ID(i)).Result()
		if err != nil || got != string(ld.Body(i)) {
			return fmt.Errorf("%s is stored as %s (%w)", ld.ID(i), got, err)
		}
	}
	return nil
}

// RunHand runs the consumer.
func RunHand(ctx context.Context, args []string, _, stderr io.Writer) error {
	f := flag.NewFlagSet(HandCommand, flag.ContinueOnError)
	f.SetOutput(stderr)
	natsURL := f.String("nats", "", "")
	redisAt := f.String("redis", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	nc, err := nats.Connect(*natsURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Addr: *redisAt})
	defer func() { _ = client.Close() }()
	consumer, err := js.CreateConsumer(ctx, handStream, jetstream.ConsumerConfig{
		Durable: "redis", AckPolicy: jetstream.AckAllPolicy, MaxAckPending: -1,
	})
	if err != nil {
		return err
	}
	arrived := make(chan jetstream.Msg, handBuffer)
	consuming, err := consumer.Consume(func(m jetstream.Msg) { arrived <- m }, jetstream.PullMaxMessages(handBuffer))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	flush := time.NewTicker(handFlush)
	defer flush.Stop()
	var batch []jetstream.Msg
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-arrived:
			if batch = append(batch, m); len(batch) < inPipeline {
				continue
			}
		case <-flush.C:
			if len(batch) == 0 {
				continue
			}
		}
		if err := storeByHand(ctx, client, batch); err != nil {
			return err
		}
		batch = batch[:0]
	}
}

// storeByHand stores the documents of messages and their deadlines, and acknowledges all messages up to the
// last.
func storeByHand(ctx context.Context, client *redis.Client, batch []jetstream.Msg) error {
	p := client.Pipeline()
	for _, m := range batch {
		var document struct {
			TTL int64 `json:"ttl"` // seconds
		}
		if err := json.Unmarshal(m.Data(), &document); err != nil {
			return err
		}
		about, err := m.Metadata()
		if err != nil {
			return err
		}
		subject := strings.Split(m.Subject(), ".")
		collection, id := subject[1], subject[2]
		deadline := float64(about.Timestamp.UnixMilli() + 1000*document.TTL)
		p.HSet(ctx, collection, id, m.Data())
		p.ZAdd(ctx, deadlinesOf(collection), redis.Z{Score: deadline, Member: id})
	}
	if _, err := p.Exec(ctx); err != nil {
		return err
	}
	return batch[len(batch)-1].Ack()
}

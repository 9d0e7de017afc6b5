package service

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink/wire"
)

// The service passes a request for a pull consumer on, and JetStream makes the consumer that was
// asked for. It answers one for a push consumer itself, and anything that it does not know.
func TestCreateConsumer(t *testing.T) {
	srv := inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	connect := func() *nats.Conn {
		nc, err := nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	served, nc := connect(), connect()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "LAPSE_EVENTS", Subjects: []string{"lapse.expired.>"}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Start(served, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := served.Flush(); err != nil {
		t.Fatal(err)
	}
	ask := func(rest, body string) (answer server.JSApiConsumerCreateResponse) {
		t.Helper()
		msg, err := nc.Request(wire.DefaultPrefix.CreateConsumer(rest), []byte(body), time.Minute)
		if err == nil {
			err = json.Unmarshal(msg.Data, &answer)
		}
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return answer
	}
	if a := ask("c.lapse.expired.orders.>", `{"stream_name":"LAPSE_EVENTS","action":"create","config":{"name":"c","durable_name":"c","filter_subject":"lapse.expired.orders.>",
		"ack_wait":5000000000,"deliver_policy":"last","metadata":{"a":"b"},"deliver_subject":"","flow_control":false,"idle_heartbeat":0}}`); a.Error != nil || a.ConsumerInfo == nil {
		t.Fatalf("a pull consumer: %+v", a.Error)
	}
	c, err := stream.Consumer(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.CachedInfo().Config; got.FilterSubject != "lapse.expired.orders.>" || got.AckWait != 5*time.Second || got.AckPolicy != jetstream.AckNonePolicy || got.DeliverPolicy != jetstream.DeliverLastPolicy || got.Metadata["a"] != "b" {
		t.Errorf("the consumer is %+v", got)
	}
	for body, want := range map[string]string{
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","deliver_subject":"x"}}`:                                 "pull consumers only",
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","Deliver_Subject":"x"}}`:                                 `"Deliver_Subject"`,
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","deliver_subject":"","DELIVER_SUBJECT":"x"}}`:            `"DELIVER_SUBJECT"`,
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p"},"Config":{"deliver_subject":"x"}}`:                      `"Config"`,
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","deliver_subject":""},"config":{"deliver_subject":"x"}}`: "pull consumers only",
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","idle_heartbeat":1}}`:                                    "pull consumers only",
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","direct":true}}`:                                         `"direct"`,
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","sourcing":true}}`:                                       `"sourcing"`,
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p"}} {"config":{"deliver_subject":"x"}}`:                    "not a JSON object",
		`{"stream_name":"LAPSE_EVENTS","config":null}`:                                                               "not a JSON object",
		`{"stream_name":"LAPSE_EVENTS"}`:                                                                             "not a JSON object",
		`null`:                                                                                                       "not a JSON object",
		``:                                                                                                           "not a JSON object",
		`{"stream_name":"OTHER","config":{"name":"p"}}`:                                                              "stream name", // JetStream's own answer
		`{"stream_name":"LAPSE_EVENTS","config":{"name":"p","filter_subject":"lapse.expired.users.>","ack_wait":"soon"}}`: "invalid JSON", // JetStream's own answer
	} {
		if a := ask("p", body); a.Error == nil || !strings.Contains(a.Error.Description, want) {
			t.Errorf("%s: the error is %+v, want %s in it", body, a.Error, want)
		}
	}
	if _, err := stream.Consumer(t.Context(), "p"); err == nil {
		t.Error("a consumer was created that should not be there")
	}
	if err := srv.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	if a := ask("p", `{"stream_name":"LAPSE_EVENTS","config":{"name":"p"}}`); a.Error == nil || a.Error.Code != 503 {
		t.Errorf("without JetStream: %+v", a.Error)
	}
}

// The service knows each field of a consumer that this version of nats-server knows, but for two
// that are for servers alone.
func TestPullFields(t *testing.T) {
	config := reflect.TypeFor[server.ConsumerConfig]()
	for i := range config.NumField() {
		name, _, _ := strings.Cut(config.Field(i).Tag.Get("json"), ",")
		known := slices.Contains(pullFields, name) != slices.Contains(pushFields, name)
		if forServers := name == "direct" || name == "sourcing"; known == forServers {
			t.Errorf("nats-server has the field %s: it belongs into pullFields or pushFields", name)
		}
	}
}

// FuzzPullConsumer: whatever is passed on is a pull consumer to the server, which reads JSON by
// Go's rules.
func FuzzPullConsumer(f *testing.F) {
	f.Add([]byte(`{"stream_name":"LAPSE_EVENTS","config":{"name":"c","ack_policy":"explicit","deliver_subject":""},"action":"create"}`))
	f.Add([]byte(`{"stream_name":"LAPSE_EVENTS","config":{"Deliver_Subject":"x"},"Config":{"deliver_\u0073ubject":"x"}}`))
	f.Fuzz(func(t *testing.T, request []byte) {
		body, err := pullConsumer(request)
		if err != nil {
			return
		}
		var read server.CreateConsumerRequest
		_ = json.Unmarshal(body, &read) // what can be read before an error counts too
		c := read.Config
		if c.DeliverSubject != "" || c.DeliverGroup != "" || c.FlowControl || c.Heartbeat != 0 || c.Direct || c.Sourcing {
			t.Errorf("%s was passed on as %s", request, body)
		}
	})
}

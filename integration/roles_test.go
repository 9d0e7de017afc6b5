package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// natsRoles is what each user of deploy/nats/accounts.conf may publish (pub) or subscribe to
// (sub). The table in deploy/docs/security.md is a summary of it.
const natsRoles = `
operation                                                          orders-writer reader forwarder lapse operator system
write documents of orders     pub lapse.write.upsert.orders.1          yes         no     no        yes   yes      -
                              pub lapse.write.delete.orders.1          yes         no     no        yes   yes      -
write documents of users      pub lapse.write.upsert.users.1           no          no     no        yes   yes      -
configure orders              pub lapse.config.orders                  no          no     no        yes   yes      -
drop orders                   pub lapse.drop.orders                    no          no     no        yes   yes      -
move log time                 pub lapse.tick                           no          no     no        yes   yes      -
                              pub lapse.shard.3.tick                   no          no     no        yes   yes      -
write past the mapping        pub lapse.shard.0.write.upsert.orders.1  no          no     no        yes   yes      -
                              pub lapse.shard.0.config.orders          no          no     no        no    yes      -
copy a configuration          pub lapse.shard.1.copy.1.config.orders   no          no     no        yes   yes      -
find out what is mapped       pub lapse.write.probe.probe.1            no          no     no        yes   yes      -
                              pub lapse.shard.0.write.probe.probe.1    no          no     no        yes   yes      -
                              sub lapse.shard.*.write.probe.probe.*    no          no     no        yes   yes      -
find out what is stored       pub lapse.config.probe                   no          no     no        yes   yes      -
read a document               pub lapse.read.get.orders.1              no          yes    no        yes   yes      -
list collections              pub lapse.read.collections               no          yes    no        no    yes      -
answer reads                  sub lapse.read.get.*.*                   no          no     no        yes   yes      -
publish expiry events         pub lapse.expired.orders.1               no          no     no        yes   yes      -
publish warnings              pub lapse.expiring.orders.1              no          no     no        yes   yes      -
publish due messages          pub lapse.due.mail.send                  no          no     no        yes   yes      -
publish changes               pub lapse.changed.orders.1               no          no     no        yes   yes      -
                              pub lapse.changed.orders                 no          no     no        yes   yes      -
publish rejections            pub lapse.rejected.orders.1              no          no     no        yes   yes      -
publish fences                pub lapse.fence.0                        no          no     no        yes   yes      -
beat as the owner             pub lapse.beat.0                         no          no     no        yes   yes      -
change leases                 pub $KV.LAPSE_MEMBERS.lease.0            no          no     no        yes   yes      -
store checkpoints             pub $KV.LAPSE_CHECKPOINTS.shard.0        no          no     no        yes   yes      -
subscribe to writes           sub lapse.write.>                        no          no     no        no    yes      -
                              sub lapse.shard.*.write.>                no          no     no        no    yes      -
subscribe to events           sub lapse.expired.>                      no          no     no        no    yes      -
inbox of its own              sub _INBOX.orders-writer.1               yes         no     no        yes   yes      -
                              sub _INBOX.reader.1                      no          yes    no        yes   yes      -
                              sub _INBOX.forwarder.1                   no          no     yes       yes   yes      -
every inbox                   sub _INBOX.>                             no          no     no        yes   yes      -
everything                    sub >                                    no          no     no        no    yes      -
look at the events            pub $JS.API.STREAM.INFO.LAPSE_EVENTS             no          yes    yes       yes   yes      -
consume the events            pub $JS.API.CONSUMER.CREATE.LAPSE_EVENTS.c       no          yes    yes       yes   yes      -
                              pub $JS.API.CONSUMER.MSG.NEXT.LAPSE_EVENTS.c     no          yes    yes       yes   yes      -
                              pub $JS.API.CONSUMER.INFO.LAPSE_EVENTS.c         no          yes    yes       yes   yes      -
                              pub $JS.API.CONSUMER.DELETE.LAPSE_EVENTS.c       no          yes    no        yes   yes      -
acknowledge an event          pub $JS.ACK.LAPSE_EVENTS.c.1.1.1.1.1             no          yes    yes       no    yes      -
                              pub $JS.ACK._.x.LAPSE_EVENTS.c.1.1.1.1.1.1       no          yes    yes       no    yes      -
feed a mirror                 pub lapse.readers.READERS                        no          no     no        no    yes      -
                              pub $JS.LAPSE.API.CONSUMER.RESET.LAPSE_EVENTS.readers-READERS  no  no  no     no    yes      -
                              pub $JS.FC.LAPSE_EVENTS.readers-READERS.1        no          no     no        no    yes      -
keep the mirrors              pub $JS.READERS.API.STREAM.INFO.LAPSE_EVENTS     no          no     no        yes   yes      -
                              pub $JS.READERS.API.STREAM.CREATE.LAPSE_EVENTS   no          no     no        yes   yes      -
                              pub $JS.FORWARD.API.STREAM.UPDATE.LAPSE_EVENTS   no          no     no        yes   yes      -
                              pub $JS.READERS.API.STREAM.DELETE.LAPSE_EVENTS   no          no     no        no    yes      -
                              pub $JS.FORWARD.API.STREAM.CREATE.OTHER          no          no     no        no    yes      -
store dead letters            pub lapse.dead.forward-orders.x                  no          no     yes       no    yes      -
look at the dead letters      pub $JS.API.STREAM.INFO.LAPSE_DEAD               no          no     yes       yes   yes      -
                              pub $JS.API.STREAM.CREATE.LAPSE_DEAD             no          no     yes       yes   yes      -
                              pub $JS.API.STREAM.MSG.GET.LAPSE_DEAD            no          no     yes       yes   yes      -
remove a dead letter          pub $JS.API.STREAM.MSG.DELETE.LAPSE_DEAD         no          no     yes       no    yes      -
remove all                    pub $JS.API.STREAM.PURGE.LAPSE_DEAD              no          no     no        no    yes      -
ask to post them again        pub lapse.resend.forward-orders                  no          no     no        yes   yes      -
                              pub lapse.resend.FORWARD.forward-orders          no          no     no        yes   yes      -
be asked for it               sub lapse.resend.*                               no          no     yes       no    yes      -
list the consumers            pub $JS.API.CONSUMER.LIST.LAPSE_EVENTS           no          no     no        yes   yes      -
                              pub $JS.FORWARD.API.CONSUMER.LIST.LAPSE_EVENTS   no          no     no        yes   yes      -
                              pub $JS.READERS.API.CONSUMER.LIST.LAPSE_EVENTS   no          no     no        yes   yes      -
look at the log               pub $JS.API.STREAM.INFO.LAPSE_LOG                no          no     no        yes   yes      -
consume the log               pub $JS.API.CONSUMER.CREATE.LAPSE_LOG.c          no          no     no        yes   yes      -
                              pub $JS.API.CONSUMER.MSG.NEXT.LAPSE_LOG.c        no          no     no        yes   yes      -
                              pub $JS.API.CONSUMER.CREATE.LAPSE_LOG_0.c        no          no     no        yes   yes      -
                              pub $JS.API.CONSUMER.MSG.NEXT.LAPSE_LOG_3.c      no          no     no        yes   yes      -
consume the configurations    pub $JS.API.CONSUMER.CREATE.LAPSE_CONFIG.c       no          no     no        no    yes      -
read a message of the log     pub $JS.API.STREAM.MSG.GET.LAPSE_LOG             no          no     no        yes   yes      -
                              pub $JS.API.DIRECT.GET.LAPSE_LOG                 no          no     no        no    yes      -
read a message of the events  pub $JS.API.DIRECT.GET.LAPSE_EVENTS              no          no     no        yes   yes      -
create a stream               pub $JS.API.STREAM.CREATE.LAPSE_LOG              no          no     no        yes   yes      -
change a stream               pub $JS.API.STREAM.UPDATE.LAPSE_EVENTS           no          no     no        yes   yes      -
purge the log                 pub $JS.API.STREAM.PURGE.LAPSE_LOG               no          no     no        yes   yes      -
                              pub $JS.API.STREAM.PURGE.LAPSE_LOG_3             no          no     no        yes   yes      -
purge the configurations      pub $JS.API.STREAM.PURGE.LAPSE_CONFIG            no          no     no        yes   yes      -
purge the events              pub $JS.API.STREAM.PURGE.LAPSE_EVENTS            no          no     no        yes   yes      -
purge the checkpoints         pub $JS.API.STREAM.PURGE.KV_LAPSE_CHECKPOINTS    no          no     no        no    yes      -
delete the log                pub $JS.API.STREAM.DELETE.LAPSE_LOG              no          no     no        no    yes      -
                              pub $JS.API.STREAM.DELETE.LAPSE_LOG_0            no          no     no        no    yes      -
delete the events             pub $JS.API.STREAM.DELETE.LAPSE_EVENTS           no          no     no        no    yes      -
delete a message of the log   pub $JS.API.STREAM.MSG.DELETE.LAPSE_LOG          no          no     no        no    yes      -
                              pub $JS.API.STREAM.MSG.DELETE.LAPSE_LOG_3        no          no     no        no    yes      -
delete one of the others      pub $JS.API.STREAM.MSG.DELETE.LAPSE_EVENTS       no          no     no        yes   yes      -
                              pub $JS.API.STREAM.MSG.DELETE.OBJ_LAPSE_SNAPSHOTS     no     no     no        yes   yes      -
                              pub $JS.API.STREAM.MSG.DELETE.LAPSE_CONFIG       no          no     no        no    yes      -
store snapshots               pub $O.LAPSE_SNAPSHOTS.C.x                       no          no     no        yes   yes      -
purge the snapshots           pub $JS.API.STREAM.PURGE.OBJ_LAPSE_SNAPSHOTS     no          no     no        yes   yes      -
delete the snapshots          pub $JS.API.STREAM.DELETE.OBJ_LAPSE_SNAPSHOTS    no          no     no        no    yes      -
order snapshots               pub lapse.snapshot.0                             no          no     no        no    yes      -
                              sub lapse.snapshot.*                             no          no     no        yes   yes      -
restore the log               pub $JS.API.STREAM.RESTORE.LAPSE_LOG             no          no     no        no    yes      -
look at another region        pub $JS.b.API.STREAM.INFO.LAPSE_LOG              no          no     no        yes   yes      -
read its log                  pub $JS.b.API.CONSUMER.CREATE.LAPSE_LOG.c        no          no     no        no    yes      -
                              pub $JS.b.API.CONSUMER.MSG.NEXT.LAPSE_LOG.c      no          no     no        no    yes      -
change its streams            pub $JS.b.API.STREAM.UPDATE.LAPSE_LOG            no          no     no        no    yes      -
delete its log                pub $JS.b.API.STREAM.DELETE.LAPSE_LOG            no          no     no        no    yes      -
pass for a mirror there       pub $JS.b.API.CONSUMER.CREATE.LAPSE_LOG          no          no     no        no    no       -
ask lapse there               pub lapse.region.b                               no          no     no        yes   yes      -
answer other regions          sub lapse.region.*                               no          no     no        yes   yes      -
see who follows               pub $JS.API.CONSUMER.NAMES.LAPSE_LOG             no          no     no        no    yes      -
list streams                  pub $JS.API.STREAM.NAMES                         no          no     no        no    yes      -
manage the servers            pub $SYS.REQ.SERVER.PING                         no          no     no        no    -        yes
`

// cell is a role, an operation, and whether the role may do it.
type cell struct {
	role, verb, subject string
	may                 bool
}

// cells reads natsRoles.
func cells(t *testing.T) (all []cell) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(natsRoles), "\n")
	roles := strings.Fields(lines[0])[1:]
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		verb := max(slices.Index(fields, "pub"), slices.Index(fields, "sub"))
		if verb < 0 || len(fields) != verb+2+len(roles) {
			t.Fatalf("line %q of the table", line)
		}
		for i, role := range roles {
			switch may := fields[verb+2+i]; may {
			case "yes", "no":
				all = append(all, cell{role, fields[verb], fields[verb+1], may == "yes"})
			case "-": // a system account has no streams, and no account has the system's subjects
			default:
				t.Fatalf("cell %q in line %q of the table", may, line)
			}
		}
	}
	return all
}

// as connects to a nats-server as a role, until the test ends.
func as(t *testing.T, server *harness.NATS, role string) *nats.Conn {
	t.Helper()
	password := harness.RolePassword(strings.ReplaceAll(role, "-", "_"))
	if role == "lapse" {
		password = harness.LapsePassword
	}
	return harness.Connect(t, server.URL(), nats.UserInfo(role, password), nats.CustomInboxPrefix("_INBOX."+role))
}

// denied publishes or subscribes, and returns what the server denies; nil if nothing.
func denied(t *testing.T, nc *nats.Conn, verb, subject string) *credentials.Denied {
	t.Helper()
	var err error
	if verb == "sub" {
		_, err = nc.SubscribeSync(subject)
	} else {
		err = nc.PublishRequest(subject, nc.NewInbox(), nil)
	}
	if err == nil {
		err = nc.FlushTimeout(harness.Limit) // the server denies before it answers this
	}
	if err != nil {
		t.Fatalf("%s %s: %v", verb, subject, err)
	}
	return credentials.AsDenied(nc.LastError())
}

// TestRoles_NATS: every role may do what the table says, and nothing else of it. Each cell is tried on a connection of
// its own to a nats-server with deploy/nats/accounts.conf: one that maps writes to four shards, and one that does not.
//
// It goes red if a permission is added to a role, or taken from it.
func TestRoles_NATS(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, func(t *testing.T, shards int) {
		testRoles(t, harness.StartNATS(t, harness.NATSOptions{Denies: true, Shards: shards}), shards)
	})
}

func testRoles(t *testing.T, server *harness.NATS, shards int) {
	for _, c := range cells(t) {
		want := c.subject
		if c.role == "lapse" { // of the account that maps; the server compares permissions after that
			want = mapped(want, shards)
		}
		nc := as(t, server, c.role)
		d := denied(t, nc, c.verb, c.subject)
		switch {
		case d == nil && !c.may:
			t.Errorf("%s may %s %s", c.role, c.verb, c.subject)
		case d != nil && c.may:
			t.Errorf("%s may not %s %s: %v", c.role, c.verb, c.subject, d)
		case d != nil && (d.Subject != want || d.Subscribe != (c.verb == "sub")):
			t.Errorf("%s: the server denies %+v, want %s %s", c.role, d, c.verb, want)
		}
		nc.Close()
	}
	for _, role := range []string{"", "nobody"} {
		_, err := nats.Connect(server.URL(), nats.UserInfo(role, "x"), nats.Timeout(harness.Limit))
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("the user %q connects: %v", role, err)
		}
	}
}

// TestRoles_RepliesReachNoStream: JetStream answers with its own rights to whatever reply subject a message names.
// Writers and readers cannot use that to publish where they may not: not a document of another collection, not an
// event, not a fence, not a tick.
//
// It goes red if applications are in the account of the streams.
func TestRoles_RepliesReachNoStream(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testRepliesReachNoStream)
}

func testRepliesReachNoStream(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":-1}`)
	event := w.Want(201, wire.Create, "orders", "expires", `{"ttl":1}`)
	w.ExpiryOf("orders", "expires", event.Etag, harness.Limit)
	writer, readers := as(t, w.nats, "orders-writer"), asJetStream(t, w.nats, "reader")
	reader := readers.Conn()
	w.mirrored(t, readers)
	consumer, err := readers.CreateConsumer(t.Context(), w.Prefix.EventsStream(),
		jetstream.ConsumerConfig{Name: "c", AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	// "lapse.expired.orders.forged" would have another ce-id
	forged := map[string]bool{w.Prefix.Stored("lapse.rejected.orders.forged"): true}
	for i, target := range []string{
		"lapse.write.upsert.users.1", "lapse.config.users", "lapse.tick", "lapse.expired.orders.forged",
		"lapse.rejected.orders.forged", "lapse.fence.0", "$KV.LAPSE_MEMBERS.lease.0", "lapse.shard.0.tick",
		"lapse.shard.0.write.upsert.users.1",
	} {
		forged[target] = true
		for _, request := range []struct {
			nc            *nats.Conn
			subject, body string
		}{
			{writer, fmt.Sprintf("lapse.write.upsert.orders.%d", i), `{}`},
			{reader, "lapse.read.get.orders.0", ""},
			{reader, "lapse.read.collections", ""},
			{reader, "$JS.API.STREAM.INFO.LAPSE_EVENTS", ""},
			{reader, "$JS.API.CONSUMER.INFO.LAPSE_EVENTS.c", ""},
			{reader, "$JS.API.CONSUMER.MSG.NEXT.LAPSE_EVENTS.c", "1"},
			{reader, "$SRV.INFO.lapse", ""},
		} {
			if err := request.nc.PublishRequest(request.subject, target, []byte(request.body)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What follows on the same connections is handled later.
	if o := w.outcomeFor(t, writer, "orders-writer", "lapse.write.upsert.orders.last"); o != 201 {
		t.Errorf("the outcome of the last write is %d, want 201", o)
	}
	if _, err := consumer.Info(t.Context()); err != nil {
		t.Error(err)
	}
	for _, m := range append(w.logs(), w.Events()...) {
		tick := strings.HasSuffix(m.Subject, ".tick")
		if forged[m.Subject] && !tick || len(m.Data) > 0 && tick {
			t.Errorf("a stream has %s: %s", m.Subject, m.Data)
		}
		if strings.HasPrefix(m.Subject, "lapse.expired.") && m.Header.Get("ce-id") != "orders/expires/"+event.Etag.String() {
			t.Errorf("a stream has the event %s: %s", m.Subject, m.Data)
		}
	}
	w.verify()
}

// TestRoles_Consume: a reader has a durable consumer of its own, acknowledges an event, and gets the next one; a batch
// of writes of a writer is stored.
//
// It goes red if an import that the account of applications needs is missing.
func TestRoles_Consume(t *testing.T) {
	t.Parallel()
	eachNumberOfShards(t, testConsume)
}

func testConsume(t *testing.T, shards int) {
	w := withShards(t, shards)
	w.Configure("orders", `{"defaultTtl":1}`)
	writer := asJetStream(t, w.nats, "orders-writer")
	if shards > 1 { // a batch is of one log
		for i := range 3 {
			if _, err := writer.Publish(t.Context(), w.Prefix.Write(wire.Create, "orders", fmt.Sprint(i)), []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		batch, err := jetstreamext.NewFastPublisher(writer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := batch.Add(w.Prefix.Write(wire.Create, "orders", fmt.Sprint(i)), []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := batch.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	js := asJetStream(t, w.nats, "reader")
	w.mirrored(t, js)
	consumer, err := js.CreateConsumer(t.Context(), w.Prefix.EventsStream(), jetstream.ConsumerConfig{
		Durable: "mine", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 1, FilterSubject: "lapse.expired.orders.>",
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < 3 {
		msg, err := consumer.Next(jetstream.FetchMaxWait(harness.Limit))
		if err != nil {
			t.Fatal(err)
		}
		seen[msg.Headers().Get("ce-id")] = true
		if err := msg.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := js.DeleteConsumer(t.Context(), w.Prefix.EventsStream(), "mine"); err != nil {
		t.Error(err)
	}
}

// asJetStream is JetStream as a role sees it.
func asJetStream(t *testing.T, server *harness.NATS, role string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(as(t, server, role), jetstream.WithDefaultTimeout(harness.Limit))
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// redisRoles is which commands each user of deploy/redis/users.acl may run.
const redisRoles = `
operation                      command                                        lapse reader operator
answer                         PING                                           yes   yes    yes
look at the server             INFO server                                    yes   yes    yes
read a document                HGET lapse:{0.0}:docs:orders 1                 yes   yes    yes
count documents                HLEN lapse:{0.0}:docs:orders                   yes   yes    yes
write a document               HSET lapse:{0.0}:docs:orders 1 x               yes   no     yes
index a document               ZADD lapse:{0.0}:own:orders 1 x                yes   no     yes
remove a collection            UNLINK lapse:{0.0}:docs:orders                 yes   no     yes
find the keys of a shard       SCAN 0 MATCH lapse:{0.0}:*                     yes   no     yes
read by a script               EVAL return(redis.call('HLEN',KEYS[1])) 1 lapse:{0.0}:docs:orders     yes   yes    yes
write by a script              EVAL return(redis.call('HSET',KEYS[1],1,2)) 1 lapse:{0.0}:docs:orders  yes   no     yes
read from a replica            READONLY                                       no    no     yes
follow a slot that moves       ASKING                                         yes   yes    yes
read another key               HGET other 1                                   no    no     yes
write another key              HSET other 1 x                                 no    no     yes
remove everything              FLUSHALL                                       no    no     yes
list all keys                  KEYS *                                         no    no     yes
change the configuration       CONFIG SET maxmemory-policy allkeys-lru        no    no     yes
read the configuration         CONFIG GET maxmemory-policy                    no    no     yes
change users                   ACL SETUSER lapse +@all                        no    no     yes
list users                     ACL LIST                                       no    no     yes
see what others do             CLIENT LIST                                    no    no     yes
                               SLOWLOG GET                                    no    no     yes
write the files anew           BGREWRITEAOF                                   yes   no     yes
                               BGSAVE                                         yes   no     yes
copy the data                  REPLICAOF NO ONE                               no    no     yes
                               SAVE                                           no    no     yes
publish                        PUBLISH lapse x                                no    no     yes
run a module or a function     FUNCTION LIST                                  no    no     yes
`

// TestRoles_Redis: every user of Redis may run what the table says, and nothing else of it.
//
// It goes red if a command is added to a user, or taken from it.
func TestRoles_Redis(t *testing.T) {
	t.Parallel()
	server := harness.StartRedis(t, harness.RedisOptions{Denies: true})
	lines := strings.Split(strings.TrimSpace(redisRoles), "\n")
	roles := strings.Fields(lines[0])[2:]
	for i, role := range roles {
		password := harness.RolePassword(role)
		if role == "lapse" {
			password = harness.LapsePassword
		}
		client := redis.NewClient(
			&redis.Options{
				Addr:         server.Address(),
				Username:     role,
				Password:     password,
				MaxRetries:   -1,
				DialTimeout:  harness.Limit,
				ReadTimeout:  harness.Limit,
				WriteTimeout: harness.Limit,
			},
		)
		defer client.Close()
		for _, line := range lines[1:] {
			fields := strings.Fields(line[min(len(line), 30):]) // without the name of the operation
			var args []any
			for _, arg := range fields[:len(fields)-len(roles)] {
				args = append(args, arg)
			}
			err := client.Do(t.Context(), args...).Err()
			// Within a script, Redis 7.0 says the one and 8 the other.
			no := redis.HasErrorPrefix(err, "NOPERM") || err != nil &&
				(strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "has no permissions to run"))
			if may := fields[len(fields)-len(roles)+i] == "yes"; may == no {
				t.Errorf("%s %v: %v, want that it may: %v", role, args, err, may)
			}
		}
	}
	nobody := redis.NewClient(&redis.Options{Addr: server.Address(), MaxRetries: -1})
	defer nobody.Close()
	if err := nobody.Ping(t.Context()).Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("without a user: %v, want NOAUTH", err)
	}
}

// TestRoles_ReaderOfRedis: [sink.Reader] reads as the user reader of deploy/redis/users.acl, every kind of read.
//
// It goes red if that user lacks a command.
func TestRoles_ReaderOfRedis(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	w.Configure("orders", `{"defaultTtl":3600}`)
	w.Want(201, wire.Create, "orders", "1", `{}`)
	client := redis.NewClient(
		&redis.Options{
			Addr:         w.redis.Address(),
			Username:     "reader",
			Password:     harness.RolePassword("reader"),
			MaxRetries:   -1,
			DialTimeout:  harness.Limit,
			ReadTimeout:  harness.Limit,
			WriteTimeout: harness.Limit,
		},
	)
	defer client.Close()
	reader, err := sink.NewReader(client, sink.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for name, read := range map[string]func(context.Context) error{
		"get":  func(ctx context.Context) error { _, err := reader.Get(ctx, "orders", "1"); return err },
		"list": func(ctx context.Context) error { _, err := reader.List(ctx, "orders", sink.ListOptions{}); return err },
		"list by deadline": func(ctx context.Context) error {
			_, err := reader.List(ctx, "orders", sink.ListOptions{Order: wire.ByDeadline})
			return err
		},
		"count": func(ctx context.Context) error { _, err := reader.Count(ctx, "orders"); return err },
		"forecast": func(ctx context.Context) error {
			_, err := reader.Forecast(ctx, "orders", sink.ForecastOptions{Buckets: 2, Within: 1e9})
			return err
		},
		"config": func(ctx context.Context) error { _, err := reader.Config(ctx, "orders"); return err },
		"collections": func(ctx context.Context) error {
			_, err := reader.Collections(ctx, sink.CollectionsOptions{})
			return err
		},
	} {
		if err := read(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestG11_NATSDeniesLapse: while lapse lacks a permission in NATS, /readyz, the metrics and the log name the subject,
// and all are well again once it has the permission. At the start, lapse ends with the same reason.
//
// It goes red if a denial shows only as an answer that does not come, or if lapse does not
// subscribe again.
func TestG11_NATSDeniesLapse(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.Configure("c", `{"defaultTtl":-1}`)
	w.nats.Deny(`"lapse.expired.>"`)
	o := w.Want(201, wire.Create, "c", "a", `{"ttl":1}`)
	unready(t, w.lapse, "the NATS server does not permit this user to publish to lapse.expired.c.a: give lapse this permission")
	if m := w.lapse.Metrics(); !strings.Contains(m, `lapse_problem{problem="permissions in NATS"} 1`) {
		t.Errorf("/metrics: %s", m)
	}
	w.nats.Permit()
	w.ExpiryOf("c", "a", o.Etag, harness.Limit)
	w.lapse.Ready()

	w.nats.Deny(`"lapse.read.>", "lapse.snapshot.*", "lapse.beat.*"`)
	unready(t, w.lapse, "subscribe to lapse.read.")
	w.nats.Permit()
	w.lapse.Ready()
	if w.Found("c", "a") {
		t.Error("c/a is found after it has expired")
	}
	w.verify()

	w.nats.Deny(`"$JS.API.STREAM.INFO.*"`)
	second := harness.PrepareLapse(t, "--nats", w.nats.URL(), "--redis", w.redis.URL())
	if log := second.FailsToStart(); !strings.Contains(log, "lapse: the NATS server does not permit this user to publish to $JS.API.STREAM.INFO.LAPSE_LOG") {
		t.Errorf("the second lapse: %s", log)
	}
}

// TestG11_RedisDeniesLapse: the same for a command of Redis.
func TestG11_RedisDeniesLapse(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{Persistent: true})
	w.Configure("c", `{"defaultTtl":3600}`)
	set := func(rule string) {
		t.Helper()
		if err := w.redis.Client().Do(t.Context(), "ACL", "SETUSER", "lapse", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("-zadd")
	seq := w.Write(wire.Create, "c", "a", `{}`)
	unready(t, w.lapse, "permissions in Redis: the user of lapse may not run zadd")
	if m := w.lapse.Metrics(); !strings.Contains(m, `lapse_problem{problem="permissions in Redis"} 1`) {
		t.Errorf("/metrics: %s", m)
	}
	second := harness.PrepareLapse(t, "--nats", w.nats.URL(), "--redis", w.redis.URL())
	if log := second.FailsToStart(); !strings.Contains(log, "lapse: the user of lapse may not run zadd on the keys of lapse: allow it") {
		t.Errorf("the second lapse: %s", log)
	}
	set("+zadd")
	w.lapse.Ready()
	w.settled("c", "a", seq)
	w.verify()
	if err := w.redis.Client().Do(t.Context(), "ACL", "LOG", "RESET").Err(); err != nil {
		t.Fatal(err)
	}
}

// TestSubscriptionsOfApplications: an application has as many subscriptions as its account allows on a connection, and
// no more.
func TestSubscriptionsOfApplications(t *testing.T) {
	t.Parallel()
	n := harness.StartNATS(t, harness.NATSOptions{Denies: true})
	refused := make(chan error, 1)
	nc, err := nats.Connect(
		n.URL(),
		nats.UserInfo("reader", harness.RolePassword("reader")),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			select {
			case refused <- err:
			default:
			}
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i := range 300 {
		if _, err := nc.SubscribeSync(fmt.Sprintf("_INBOX.reader.%d", i)); err != nil {
			break // the server has closed the connection
		}
	}
	_ = nc.Flush()
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
			t.Errorf("%v", err)
		}
	case <-time.After(harness.Limit):
		t.Error("300 subscriptions were allowed")
	}
}

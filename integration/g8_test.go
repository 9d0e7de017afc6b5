package integration

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// bad is a message that lapse must reject.
type bad struct {
	code    int
	subject string // without the prefix
	body    string
	header  nats.Header
}

// badInput returns bad messages of every kind, by what is bad. They are for three
// collections: c (TTL on, with document a), off (TTL off, with document a) and none
// (without an index).
func badInput(maxBody int) map[string]bad {
	all := map[string]bad{
		"unknown operation":        {400, "write.insert.c.a", `{}`, nil},
		"operation in capitals":    {400, "write.UPSERT.c.a", `{}`, nil},
		"no id":                    {400, "write.upsert.c", `{}`, nil},
		"no collection":            {400, "write.upsert", `{}`, nil},
		"a dot in the id":          {400, "write.upsert.c.a.b", `{}`, nil},
		"bad escape":               {400, "write.upsert.c.%zz", `{}`, nil},
		"escape in lower case":     {400, "write.upsert.c.%c3%bc", `{}`, nil},
		"needless escape":          {400, "write.upsert.c.%61", `{}`, nil},
		"unescaped byte":           {400, "write.upsert.c.ü", `{}`, nil},
		"id is not UTF-8":          {400, "write.upsert.c.%FF", `{}`, nil},
		"id too long":              {400, "write.upsert.c." + strings.Repeat("x", 256), `{}`, nil},
		"bad collection":           {400, "write.upsert.c$.a", `{}`, nil},
		"collection too long":      {400, "write.upsert." + strings.Repeat("x", 129) + ".a", `{}`, nil},
		"body of touch":            {400, "write.touch.c.a", `{}`, nil},
		"body of delete":           {400, "write.delete.c.a", `{}`, nil},
		"too large":                {413, "write.upsert.c.a", `{"a":"` + strings.Repeat("x", maxBody-7) + `"}`, nil},
		"too large when patched":   {413, "write.patch.big.a", `{"b":"` + strings.Repeat("x", maxBody/2) + `"}`, nil},
		"too many levels":          {400, "write.upsert.c.a", nested(1001), nil},
		"patch of too many levels": {400, "write.patch.c.a", nested(1001), nil},
		"levels of arrays too":     {400, "write.upsert.c.a", `{"a":[` + nested(999) + `]}`, nil},
		"configures too deep":      {400, "config.c", nested(1001), nil},
		"exists":                   {409, "write.create.c.a", `{}`, nil},
		"does not exist":           {404, "write.replace.c.absent", `{}`, nil},
		"another version":          {412, "write.upsert.c.a", `{}`, harness.Header(wire.HeaderIfMatch, "999999")},
		"no version":               {412, "write.upsert.c.absent", `{}`, harness.Header(wire.HeaderIfMatch, "*")},
		"If-Match is no etag":      {400, "write.upsert.c.a", `{}`, harness.Header(wire.HeaderIfMatch, `"1"`)},
		"If-Match twice": {400, "write.upsert.c.a", `{}`,
			harness.Header(wire.HeaderIfMatch, "*", wire.HeaderIfMatch, "*")},
		"unknown header":       {400, "write.upsert.c.a", `{}`, harness.Header("Lapse-Ttl", "5")},
		"header in lower case": {412, "write.upsert.c.a", `{}`, harness.Header("lapse-if-match", "999999")},
		"another configuration": {412, "config.c", `{"defaultTtl":-1}`,
			harness.Header(wire.HeaderIfMatch, "999999")},
		"no configuration":         {412, "config.absent", `{}`, harness.Header(wire.HeaderIfMatch, "*")},
		"drops another":            {412, "drop.c", ``, harness.Header(wire.HeaderIfMatch, "999999")},
		"drops nothing, if":        {412, "drop.absent", ``, harness.Header(wire.HeaderIfMatch, "*")},
		"configures nothing":       {400, "config.c", ``, nil},
		"configures two":           {400, "config.c.d", `{}`, nil},
		"configures a bad name":    {400, "config.c$", `{}`, nil},
		"unknown property":         {400, "config.c", `{"defaultTtl":-1,"ttl":5}`, nil},
		"property in another case": {400, "config.c", `{"defaultTTL":5}`, nil},
		"unknown mode":             {400, "config.c", `{"indexingMode":"eager"}`, nil},
		"no index with a default":  {400, "config.new", `{"defaultTtl":5,"indexingMode":"none"}`, nil},
		"no index, default is set": {400, "config.c", `{"indexingMode":"none"}`, nil},
		"default without index":    {400, "config.none", `{"defaultTtl":5}`, nil},
		"body of drop":             {400, "drop.c", `{}`, nil},
		"drops two":                {400, "drop.c.d", ``, nil},
	}
	for _, body := range []string{
		``, ` `, `{`, `{}}`, `null`, `[]`, `"a"`, `1`, `{'a':1}`, `{"a":1,}`, `{"a":NaN}`, "{\"a\":\"\xff\"}",
		"\xef\xbb\xbf{}", `{"a":"` + "\n" + `"}`,
		strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat(`}`, 20_000),
		`{"id":"b"}`, `{"id":1}`, `{"id":null}`, `{"id":"a","id":"b"}`,
	} {
		all["body "+short(body)] = bad{400, "write.upsert.c.a", body, nil}
	}
	for _, ttl := range []string{
		`0`, `-2`, `1.5`, `5.0`, `1e1`, `"5"`, `true`, `{}`, `[5]`, `2147483648`, `-2147483649`, `99999999999999999999`,
		`-0`, `5,"ttl":0`,
	} {
		all["ttl "+ttl] = bad{400, "write.upsert.c.a", `{"ttl":` + ttl + `}`, nil}
		all["patched ttl "+ttl] = bad{400, "write.patch.c.a", `{"ttl":` + ttl + `}`, nil}
		all["default "+ttl] = bad{400, "config.off", `{"defaultTtl":` +
			strings.ReplaceAll(ttl, `"ttl"`, `"defaultTtl"`) + `}`, nil}
	}
	return all
}

// nested is an object with so many levels.
func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}

// TestG8_DeepDocuments: the most levels are written and patched.
func TestG8_DeepDocuments(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	w.Want(201, wire.Upsert, "today", "a", nested(1000))
	w.Want(200, wire.Patch, "today", "a", `{"b":`+nested(999)+`}`)
	w.Want(200, wire.Patch, "today", "a", nested(1000))
	w.Want(400, wire.Patch, "today", "a", `{"b":`+nested(1000)+`}`)
	w.verify()
}

func short(s string) string {
	if len(s) > 30 {
		s = s[:30] + "..."
	}
	return strconv.Quote(s)
}

// TestG8_EveryKindOfBadInput: bad input of every kind is rejected with its code and a reason, in an event and in the
// outcome. The next message is applied.
//
// It fails if lapse does not check a kind; if a message that it cannot decode stops the
// shard, or is dropped without a rejection; if a rejected message changes anything.
func TestG8_EveryKindOfBadInput(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	maxBody := int(w.NC.MaxPayload()) - 8<<10
	w.Configure("c", `{"defaultTtl":-1}`)
	w.Configure("none", `{"indexingMode":"none"}`)
	w.Want(201, wire.Create, "c", "a", `{"v":1}`)
	w.Want(201, wire.Create, "off", "a", `{"ttl":"not interpreted"}`)
	w.Want(201, wire.Create, "big", "a", `{"a":"`+strings.Repeat("x", maxBody/2)+`"}`)

	codes := map[uint64]int{}
	for name, bad := range badInput(maxBody) {
		o, seq := w.Do("lapse."+bad.subject, bad.body, bad.header)
		codes[seq] = bad.code
		if o.Status != bad.code || o.Error == "" || o.Etag != 0 || o.ExpiresAt != nil {
			t.Errorf("%s: outcome %+v, want status %d with a reason", name, o, bad.code)
		}
	}
	// lapse publishes no outcome to a subject that a client may not choose.
	sub, err := w.NC.SubscribeSync("elsewhere.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{"elsewhere.a", "_INBOX_acme.x", "_INBOX.*", "_INBOX.>", "_INBOX.", "_INBOX",
		"_INBOX.a b", "lapse.write.upsert.c.a", ""} {
		seq := w.Send(w.Prefix.Write(wire.Upsert, "c", "b"), `{}`, nats.Header{wire.HeaderReplyTo: {reply}})
		codes[seq] = 400
	}
	last := w.Want(201, wire.Create, "c", "last", `{"v":1}`)
	w.settled("c", "last", uint64(last.Etag))
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d outcomes were published elsewhere (%v), want none", n, err)
	}

	result := w.verify()
	if got := len(result.Model.Rejections); got != len(codes) {
		t.Errorf("the oracle has %d rejections, want %d", got, len(codes))
	}
	for _, e := range result.Events {
		seq, err := strconv.ParseUint(e.Header.Get(wire.HeaderSeq), 10, 64)
		if err != nil {
			t.Errorf("event %d: %v", e.Seq, err)
			continue
		}
		if got := e.Header.Get(wire.HeaderCode); got != fmt.Sprint(codes[seq]) {
			t.Errorf("%s: code %s, want %d", e.Header.Get(wire.HeaderSubject), got, codes[seq])
		}
	}
}

// TestG8_FloodOfGarbage: a flood of garbage does not keep lapse from applying writes.
//
// It fails if each rejection costs a wait; if garbage fills a queue without a bound.
func TestG8_FloodOfGarbage(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	const many = 10_000
	for i := range many {
		subject := []string{"lapse.write.upsert.c", "lapse.write.bogus.c.a", "lapse.config.c",
			"lapse.write.upsert.c.a"}[i%4]
		w.SendLater(subject, "garbage")
		if i == many/2 {
			w.Want(201, wire.Create, "c", "good", `{}`)
		}
	}
	w.Want(409, wire.Create, "c", "good", `{}`)
	result := w.verify()
	if n := len(result.Model.Rejections); n != many+1 {
		t.Errorf("%d rejections, want %d", n, many+1)
	}
}

// TestG8_NoRejectionInTheShadowOfAnother: two shards may publish rejections on one subject: one for an id token that
// should be escaped and is not, one for the same token escaped. If lapse crashes after it has published one of them, it
// still publishes the other.
//
// It fails if a new owner takes the last message on a subject as proof that its shard has
// published its own.
func TestG8_NoRejectionInTheShadowOfAnother(t *testing.T) {
	t.Parallel()
	const shards = 3 // of 2, the collection would not count: the hash modulo 2 is the parity of the bytes
	w := withShards(t, shards)
	raw, escaped := "ü", wire.EscapeID("ü")
	collection := "c"
	for wire.ShardOf(shards, collection, raw) == wire.ShardOf(shards, collection, escaped) {
		collection += "c"
	}
	first := w.Send("lapse.write.bogus."+collection+"."+escaped, `{}`, nil)
	w.Send("lapse.write.upsert."+collection+"."+raw, `{}`, nil)
	w.verify()
	w.lapse.Terminate()

	// The state after a crash when only the second was stored: no first rejection, no
	// checkpoint, and an empty Redis.
	stream, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range w.Events() {
		if e.Header.Get(wire.HeaderStream) == w.Prefix.Log(wire.ShardOf(shards, collection, escaped),
			shards).Stream() && e.Header.Get(wire.HeaderSeq) == fmt.Sprint(first) {
			if err := stream.DeleteMsg(t.Context(), e.Seq); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.JS.DeleteKeyValue(t.Context(), w.Prefix.CheckpointBucket()); err != nil {
		t.Fatal(err)
	}
	if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	harness.At(t, time.Now().Add(10*duplicateWindow)) // so that the server does not remember its id
	w.lapse.Start()
	w.verify()
}

package integration

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// bad is a message that must be rejected.
type bad struct {
	code    int
	subject string // without the prefix
	body    string
	header  nats.Header
}

// badInput is every kind of it, for collection c (TTL on, document a), off (TTL
// off, document a) and none (no index).
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
		"exists":                   {409, "write.create.c.a", `{}`, nil},
		"does not exist":           {404, "write.replace.c.absent", `{}`, nil},
		"another version":          {412, "write.upsert.c.a", `{}`, harness.Header(wire.HeaderIfMatch, "999999")},
		"no version":               {412, "write.upsert.c.absent", `{}`, harness.Header(wire.HeaderIfMatch, "*")},
		"If-Match is no etag":      {400, "write.upsert.c.a", `{}`, harness.Header(wire.HeaderIfMatch, `"1"`)},
		"If-Match twice":           {400, "write.upsert.c.a", `{}`, harness.Header(wire.HeaderIfMatch, "*", wire.HeaderIfMatch, "*")},
		"unknown header":           {400, "write.upsert.c.a", `{}`, harness.Header("Lapse-Ttl", "5")},
		"header in lower case":     {412, "write.upsert.c.a", `{}`, harness.Header("lapse-if-match", "999999")},
		"If-Match on config":       {400, "config.c", `{"defaultTtl":-1}`, harness.Header(wire.HeaderIfMatch, "*")},
		"configures nothing":       {400, "config.c", ``, nil},
		"configures two":           {400, "config.c.d", `{}`, nil},
		"configures a bad name":    {400, "config.c$", `{}`, nil},
		"unknown property":         {400, "config.c", `{"defaultTtl":-1,"ttl":5}`, nil},
		"property in another case": {400, "config.c", `{"defaultTTL":5}`, nil},
		"unknown mode":             {400, "config.c", `{"indexingMode":"lazy"}`, nil},
		"no index with a default":  {400, "config.new", `{"defaultTtl":5,"indexingMode":"none"}`, nil},
		"no index, default is set": {400, "config.c", `{"indexingMode":"none"}`, nil},
		"default without index":    {400, "config.none", `{"defaultTtl":5}`, nil},
		"body of drop":             {400, "drop.c", `{}`, nil},
		"drops two":                {400, "drop.c.d", ``, nil},
	}
	for _, body := range []string{
		``, ` `, `{`, `{}}`, `null`, `[]`, `"a"`, `1`, `{'a':1}`, `{"a":1,}`, `{"a":NaN}`, "{\"a\":\"\xff\"}", "\xef\xbb\xbf{}", `{"a":"` + "\n" + `"}`,
		strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat(`}`, 20_000),
		`{"id":"b"}`, `{"id":1}`, `{"id":null}`, `{"id":"a","id":"b"}`,
	} {
		all["body "+short(body)] = bad{400, "write.upsert.c.a", body, nil}
	}
	for _, ttl := range []string{
		`0`, `-2`, `1.5`, `5.0`, `1e1`, `"5"`, `true`, `{}`, `[5]`, `2147483648`, `-2147483649`, `99999999999999999999`, `-0`, `5,"ttl":0`,
	} {
		all["ttl "+ttl] = bad{400, "write.upsert.c.a", `{"ttl":` + ttl + `}`, nil}
		all["patched ttl "+ttl] = bad{400, "write.patch.c.a", `{"ttl":` + ttl + `}`, nil}
		all["default "+ttl] = bad{400, "config.off", `{"defaultTtl":` + strings.ReplaceAll(ttl, `"ttl"`, `"defaultTtl"`) + `}`, nil}
	}
	return all
}

func short(s string) string {
	if len(s) > 30 {
		s = s[:30] + "..."
	}
	return strconv.Quote(s)
}

// Bad input of any kind ends as a rejection with its code and a reason, as an
// outcome for who asked, and the next message goes through.
//
// It fails if a kind is not looked at; if a message that cannot be read stops
// the partition, or is left without a word; if it moves what it is not about.
func TestG8_EveryKindOfBadInput(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	maxBody := int(w.NC.MaxPayload()) - 8<<10
	w.Configure("c", `{"defaultTtl":-1}`)
	w.Configure("none", `{"indexingMode":"none"}`)
	w.Want(201, wire.Create, "c", "a", `{"v":1}`)
	w.Want(201, wire.Create, "off", "a", `{"ttl":"not looked at"}`)
	w.Want(201, wire.Create, "big", "a", `{"a":"`+strings.Repeat("x", maxBody/2)+`"}`)

	codes := map[uint64]int{}
	for name, bad := range badInput(maxBody) {
		o, seq := w.DoSeq("lapse."+bad.subject, bad.body, bad.header)
		codes[seq] = bad.code
		if o.Status != bad.code || o.Error == "" || o.Etag != 0 || o.ExpiresAt != nil {
			t.Errorf("%s: outcome %+v, want status %d with a reason", name, o, bad.code)
		}
	}
	// Whoever asks for an answer elsewhere gets none, and nobody else does.
	sub, err := w.NC.SubscribeSync("elsewhere.>")
	if err != nil {
		t.Fatal(err)
	}
	for _, reply := range []string{"elsewhere.a", "_INBOX.*", "_INBOX.>", "_INBOX.", "_INBOX", "_INBOX.a b", "lapse.write.upsert.c.a", ""} {
		seq := w.Send(w.Prefix.Write(wire.Upsert, "c", "b"), `{}`, nats.Header{wire.HeaderReplyTo: {reply}})
		codes[seq] = 400
	}
	last := w.Want(201, wire.Create, "c", "last", `{"v":1}`)
	w.settled("c", "last", uint64(last.Etag))
	if n, _, err := sub.Pending(); err != nil || n != 0 {
		t.Errorf("%d answers went elsewhere, %v", n, err)
	}

	result := w.verify()
	if got := len(result.Model.Rejections); got != len(codes) {
		t.Errorf("the oracle knows %d rejections, want %d", got, len(codes))
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

// A flood of garbage keeps nobody from working.
//
// It fails if garbage costs a wait each, or fills something that is not bounded.
func TestG8_FloodOfGarbage(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	const many = 10_000
	for i := range many {
		subject := []string{"lapse.write.upsert.c", "lapse.write.bogus.c.a", "lapse.config.c", "lapse.write.upsert.c.a"}[i%4]
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

// Rejections of two partitions may stand on one subject: a token that is not
// escaped, though it should be, and the same one escaped. Of the two, the one
// that was said hides nothing: the other is still said after a crash in between.
//
// It fails if the look-up of what was said takes the last message of a subject
// for a word about all partitions.
func TestG8_NoRejectionInTheShadowOfAnother(t *testing.T) {
	t.Parallel()
	w := inProcess(t)
	const partitions = 16
	raw, escaped := "ü", wire.EscapeID("ü")
	collection := ""
	for i := range 100 {
		collection = fmt.Sprint("c", i)
		if storedPartition(partitions, collection, raw) != storedPartition(partitions, collection, escaped) {
			break
		}
	}
	first := w.Send("lapse.write.bogus."+collection+"."+escaped, `{}`, nil)
	w.Send("lapse.write.upsert."+collection+"."+raw, `{}`, nil)
	w.verify()
	w.stopProcessor()

	// As if the process had died when the second was stored and the first was not:
	// no checkpoint yet, and a Redis that knows nothing.
	stream, err := w.JS.Stream(t.Context(), w.Prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range w.Events() {
		if e.Header.Get(wire.HeaderSeq) == fmt.Sprint(first) {
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
	harness.At(t, time.Now().Add(10*duplicateWindow)) // the server has forgotten, too
	w.startProcessor()
	w.verify()
}

// storedPartition is the partition that the log gives a pair of tokens.
func storedPartition(n int, collection, token string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(collection + token))
	return h.Sum32() % uint32(n)
}

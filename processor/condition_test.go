package processor

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// rejections are the rejections on a subject, in their order, as "sequence code".
func (r *rig) rejections(subject string) (list []string) {
	r.t.Helper()
	for _, m := range r.outputs() {
		if m.subject == subject {
			list = append(list, m.header.Get(wire.HeaderSeq)+" "+m.header.Get(wire.HeaderCode))
		}
	}
	return list
}

// sameConfig fails the test unless all shards have the same configuration of a
// collection stored, with an etag. Of the history it compares the last epoch: each
// shard forgets the epochs before it when nothing of its own needs them.
func (r *rig) sameConfig(collection string, etag wire.Etag) {
	r.t.Helper()
	stored := map[string]int{}
	for _, key := range keysOf(r.t, r, "*:config") {
		raw, err := r.redis.HGet(r.t.Context(), key, collection).Result()
		if err != nil {
			r.t.Errorf("%s has no configuration of %s: %v", key, collection, err)
		}
		head, last := raw, ""
		if i := strings.LastIndex(raw, "["); i >= 0 {
			head, last = raw[:strings.Index(raw, "[")], raw[i:]
		}
		stored[head+last]++
	}
	c, err := r.reader.Config(r.t.Context(), collection)
	if err != nil || c.Etag != etag || len(stored) != 1 {
		r.t.Errorf("the configuration of %s is %+v (%v), want etag %s; the shards have %v", collection, c, err, etag, stored)
	}
}

// TestG1_ConfigurationOnCondition: a configuration and a drop with If-Match take effect
// only on the configuration that they name. Every shard decides that alike, one of
// them publishes it, and a rebuild decides it again.
//
// It fails if a shard applies what another rejects, if an equal configuration keeps
// the etag, or if each shard publishes the rejection.
func TestG1_ConfigurationOnCondition(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		on := func(status int, subject, body, etag string) wire.Outcome {
			t.Helper()
			return r.must(status, subject, body, wire.HeaderIfMatch, etag)
		}
		reject := func(subject, body, etag string) {
			t.Helper()
			on(412, subject, body, etag)
		}
		config, drop := prefix.Config("c"), prefix.Drop("c")
		reject(config, `{}`, "*") // never configured
		reject(config, `{}`, "1")
		reject(drop, ``, "*")
		first := r.config("c", `{"defaultTtl":3600}`)
		r.sameConfig("c", first.Etag)
		for i := range 20 { // in every shard
			r.put("c", fmt.Sprint(i), `{}`)
		}
		second := on(200, config, `{"defaultTtl":3600}`, first.Etag.String()) // changes nothing but the etag
		if second.Etag <= first.Etag {
			t.Errorf("an equal configuration has etag %s after %s", second.Etag, first.Etag)
		}
		r.sameConfig("c", second.Etag)
		reject(config, `{}`, first.Etag.String())
		reject(drop, ``, first.Etag.String())
		r.sameConfig("c", second.Etag)
		for i := range 20 {
			if r.body("c", fmt.Sprint(i)) == "" {
				t.Errorf("document %d is gone by a drop that was rejected", i)
			}
		}
		r.must(400, config, `{"indexingMode":"none"}`, wire.HeaderIfMatch, "1") // before If-Match
		third := on(200, config, `{"defaultTtl":3600,"indexingMode":"lazy"}`, "*")
		r.sameConfig("c", third.Etag)

		// The same again, of the log alone, with other histories in between.
		r.caughtUp(p)
		p.stop(t)
		published := len(r.outputs())
		if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		p = r.run()
		r.caughtUp(p)
		r.sameConfig("c", third.Etag)
		if n := len(r.outputs()); n != published {
			t.Errorf("a rebuild published %d messages", n-published)
		}
		if o := on(204, drop, ``, third.Etag.String()); o.Etag != 0 {
			t.Errorf("outcome of a drop: %+v", o)
		}
		if r.body("c", "7") != "" {
			t.Error("a dropped document is there")
		}
		if c, err := r.reader.Config(t.Context(), "c"); err != nil ||
			!reflect.DeepEqual(c, wire.Config{IndexingMode: wire.Consistent}) {
			t.Errorf("configuration after the drop: %+v, %v", c, err)
		}
		reject(config, `{}`, "*") // it is configured no more
		var codes []string
		for _, one := range r.rejections("lapse.rejected.c") {
			codes = append(codes, one[len(one)-3:])
		}
		if want := []string{"412", "412", "412", "412", "412", "400", "412"}; !slices.Equal(codes, want) {
			t.Errorf("rejections %v, want %v", codes, want)
		}
	})
}

package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/embedded"
)

// BenchmarkConnections compares the connection within the process with one over loopback: reads
// one after the other and from many goroutines, and commits of 500 documents of 256 B by a script,
// eight in a pipeline.
//
//	go test ./sink/embedded -run - -bench Connections -benchmem
func BenchmarkConnections(b *testing.B) {
	const password, perCommit, perPipeline = "secret", 500, 8
	server := embedded.New(nil)
	defer server.Close()
	if err := server.Listen("127.0.0.1:0", password); err != nil {
		b.Fatal(err)
	}
	for name, opts := range map[string]*redis.Options{"in process": {Dialer: server.Dial},
		"loopback": {Addr: server.Addr(), Password: password}} {
		opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
		client := redis.NewClient(opts)
		defer client.Close()
		commit := redis.NewScript(`for i = 1, #ARGV, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end return #ARGV`)
		args := make([]any, 0, 2*perCommit)
		for i := range perCommit {
			args = append(args, fmt.Sprintf("%036d", i), strings.Repeat("x", 256))
		}
		if err := commit.Run(b.Context(), client, []string{"h"}, args...).Err(); err != nil {
			b.Fatal(err)
		}
		read := func(b *testing.B) {
			if err := client.HMGet(b.Context(), "h", args[0].(string), args[2].(string)).Err(); err != nil {
				b.Error(err)
			}
		}
		b.Run(name+"/read", func(b *testing.B) {
			for b.Loop() {
				read(b)
			}
		})
		b.Run(name+"/reads at once", func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					read(b)
				}
			})
		})
		b.Run(name+"/pipeline of commits", func(b *testing.B) {
			for b.Loop() {
				_, err := client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
					for range perPipeline {
						commit.EvalSha(b.Context(), p, []string{"h"}, args...)
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

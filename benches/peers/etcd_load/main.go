// Loads an etcd cluster with puts, then with linearizable gets, and says how many it answers and how
// fast: the counterpart of nicol-resp's example kv_load.
//
// usage: etcd_load ENDPOINTS CLIENTS VALUE_BYTES KEYS SECONDS
//
// ENDPOINTS are separated by commas. Each client has a connection of its own to one member, in turns, and
// waits for each reply before it asks again. Prints one JSON object for each kind.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

type result struct {
	Kind      string  `json:"kind"`
	Clients   int     `json:"clients"`
	Answered  int     `json:"operations"`
	Failed    int     `json:"failed"`
	PerSecond float64 `json:"per_second"`
	MeanUs    float64 `json:"mean_us"`
	P50Us     float64 `json:"p50_us"`
	P99Us     float64 `json:"p99_us"`
}

func run(kind string, clients []*clientv3.Client, valueBytes, keys int, span time.Duration) result {
	var mutex sync.Mutex
	var latencies []time.Duration
	failed := 0
	began := time.Now()
	until := began.Add(span)
	var group sync.WaitGroup
	for number, client := range clients {
		group.Add(1)
		go func(number int, client *clientv3.Client) {
			defer group.Done()
			chosen := rand.New(rand.NewSource(int64(number + 1)))
			value := strings.Repeat("v", valueBytes)
			var own []time.Duration
			wrong := 0
			for time.Now().Before(until) {
				key := fmt.Sprintf("key:%012d", chosen.Intn(keys))
				asked := time.Now()
				var err error
				if kind == "put" {
					_, err = client.Put(context.Background(), key, value)
				} else {
					// Linearizable, unless WithSerializable is given.
					var got *clientv3.GetResponse
					got, err = client.Get(context.Background(), key)
					if err == nil && len(got.Kvs) > 0 && len(got.Kvs[0].Value) != valueBytes {
						err = fmt.Errorf("%s has %d bytes", key, len(got.Kvs[0].Value))
					}
				}
				if err != nil {
					wrong++
					continue
				}
				own = append(own, time.Since(asked))
			}
			mutex.Lock()
			latencies = append(latencies, own...)
			failed += wrong
			mutex.Unlock()
		}(number, client)
	}
	group.Wait()
	took := time.Since(began).Seconds()
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	told := result{Kind: kind, Clients: len(clients), Answered: len(latencies), Failed: failed}
	if len(latencies) == 0 {
		return told
	}
	var sum time.Duration
	for _, one := range latencies {
		sum += one
	}
	at := func(part float64) float64 {
		return float64(latencies[int(part*float64(len(latencies)-1))].Microseconds())
	}
	told.PerSecond = float64(len(latencies)) / took
	told.MeanUs = float64(sum.Microseconds()) / float64(len(latencies))
	told.P50Us, told.P99Us = at(0.5), at(0.99)
	return told
}

func number(word string) int {
	parsed, err := strconv.Atoi(word)
	if err != nil || parsed < 1 {
		fmt.Fprintf(os.Stderr, "'%s': give a number from 1 on\n", word)
		os.Exit(2)
	}
	return parsed
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: etcd_load ENDPOINTS CLIENTS VALUE_BYTES KEYS SECONDS")
		os.Exit(2)
	}
	endpoints := strings.Split(os.Args[1], ",")
	count, valueBytes, keys := number(os.Args[2]), number(os.Args[3]), number(os.Args[4])
	span := time.Duration(number(os.Args[5])) * time.Second
	var clients []*clientv3.Client
	for place := 0; place < count; place++ {
		config := clientv3.Config{
			Endpoints:   []string{endpoints[place%len(endpoints)]},
			DialTimeout: 10 * time.Second,
		}
		client, err := clientv3.New(config)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer client.Close()
		clients = append(clients, client)
	}
	for _, kind := range []string{"put", "get"} {
		line, _ := json.Marshal(run(kind, clients, valueBytes, keys, span))
		fmt.Println(string(line))
	}
}

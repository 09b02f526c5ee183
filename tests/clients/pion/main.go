// Joins a room, sends silence and the pictures of a file, receives one voice and one picture of others:
// go run . ws://127.0.0.1:7880 garden Ada camera.ivf
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/ivfreader"
)

type message struct {
	Event string          `json:"event,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error json.RawMessage `json:"error,omitempty"`
	Cid   int             `json:"cid,omitempty"`
	Rid   int             `json:"rid,omitempty"`
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	url, room, name, camera := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx := context.Background()
	socket, _, err := websocket.Dial(ctx, url+"/socketcluster/", nil)
	must(socket, err).SetReadLimit(1 << 20)
	answers := make(chan message, 8)
	go func() {
		for {
			_, text, err := socket.Read(ctx)
			var m message
			switch {
			case err != nil:
				log.Fatal("the server is gone: ", err)
			case len(text) == 0: // The server's ping.
				socket.Write(ctx, websocket.MessageText, nil)
			case json.Unmarshal(text, &m) == nil && m.Rid > 0:
				answers <- m
			}
		}
	}()
	cid := 0
	ask := func(event string, data any) json.RawMessage {
		cid++
		text := must(json.Marshal(message{Event: event, Data: must(json.Marshal(data)), Cid: cid}))
		must(0, socket.Write(ctx, websocket.MessageText, text))
		answer := <-answers
		if answer.Error != nil {
			log.Fatalf("refused: %s", answer.Error)
		}
		return answer.Data
	}
	ask("#handshake", map[string]any{"authToken": nil})
	ask("room.join", map[string]any{"room": room, "name": name, "audio": "sfu", "video": "sfu"})

	pc := must(webrtc.NewPeerConnection(webrtc.Configuration{}))
	var came [2]atomic.Int64
	pc.OnTrack(func(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
		for {
			packet, _, err := track.ReadRTP()
			if err != nil {
				return
			}
			if track.Kind() == webrtc.RTPCodecTypeAudio {
				came[0].Add(1)
			} else if packet.Marker {
				came[1].Add(1)
			}
		}
	})
	// What this client sends, each on a line of its own; then lines to receive on.
	recv := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}
	send := webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly}
	opus := must(webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus}, "audio", name))
	vp8 := must(webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeVP8}, "video", name))
	lines := []*webrtc.RTPTransceiver{
		must(pc.AddTransceiverFromTrack(opus, send)), must(pc.AddTransceiverFromTrack(vp8, send)),
	}
	must(pc.AddTransceiverFromKind(webrtc.RTPCodecTypeAudio, recv))
	must(pc.AddTransceiverFromKind(webrtc.RTPCodecTypeVideo, recv))
	gathered := webrtc.GatheringCompletePromise(pc)
	must(0, pc.SetLocalDescription(must(pc.CreateOffer(nil))))
	<-gathered
	tracks := []map[string]string{}
	for _, line := range lines {
		tracks = append(tracks, map[string]string{"mid": line.Mid(), "kind": line.Kind().String(), "name": name})
	}
	var answer struct{ SDP string }
	must(0, json.Unmarshal(ask("room.offer", map[string]any{"sdp": pc.LocalDescription().SDP, "tracks": tracks}), &answer))
	must(0, pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer.SDP}))

	// Sound comes from an encoder of yours; this is 20 ms of silence as Opus encodes it.
	silence := func() ([]byte, error) { return []byte{0xf8, 0xff, 0xfe}, nil }
	go play(opus, 20*time.Millisecond, nil, func() func() ([]byte, error) { return silence })
	// Requests for lost packets are answered while control packets are read. A file begins with a keyframe.
	keyframe := make(chan bool, 1)
	go func() {
		for {
			packets, _, err := lines[1].Sender().ReadRTCP()
			if err != nil {
				return
			}
			for _, packet := range packets {
				if _, lost := packet.(*rtcp.PictureLossIndication); lost && len(keyframe) == 0 {
					keyframe <- true
				}
			}
		}
	}()
	go play(vp8, 50*time.Millisecond, keyframe, func() func() ([]byte, error) {
		ivf, _, err := ivfreader.NewWith(must(os.Open(camera)))
		must(ivf, err)
		return func() ([]byte, error) { frame, _, err := ivf.ParseNextFrame(); return frame, err }
	})
	for range time.Tick(time.Second) {
		state := strings.ToLower(pc.ConnectionState().String())
		fmt.Printf("{\"state\": %q, \"audio\": %d, \"video\": %d}\n", state, came[0].Load(), came[1].Load())
	}
}

// Sends a file again and again, one sample each so much time, and from its beginning when that is asked for.
func play(track *webrtc.TrackLocalStaticSample, every time.Duration, again <-chan bool, open func() func() ([]byte, error)) {
	next := open()
	for range time.Tick(every) {
		select {
		case <-again:
			next = open()
		default:
		}
		data, err := next()
		if err != nil {
			next = open()
			continue
		}
		must(0, track.WriteSample(media.Sample{Data: data, Duration: every}))
	}
}

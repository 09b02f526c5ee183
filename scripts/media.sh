#!/usr/bin/env bash
# Makes what the lab's bots send: media/speech-{1..8}.ogg and media/video-{180p,360p,480p,1080p}.ivf.
# `scripts/media.sh FILE…` makes these alone, such as media/video-180p.ivf, and leaves the others as they are.
# The speech is espeak-ng's, saying the sentences below; the pictures are ffmpeg's own generators.
# Nothing is recorded and nothing is downloaded here; media/*.json are recorded by scripts/record-camera.py and
# scripts/record-pictures.mjs. The results are committed: run this only to change them. The same versions of espeak-ng and
# ffmpeg make the same files.
set -euo pipefail
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/.."

only=("$@")
wanted() { ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" $1 "* ]]; }
need=()
[[ ${#only[@]} -gt 0 && ${only[*]} != *speech* ]] || command -v espeak-ng >/dev/null || need+=(espeak-ng)
{ command -v ffmpeg && command -v ffprobe; } >/dev/null || need+=(ffmpeg)
if ((${#need[@]})); then
  if [[ $(id -u) == 0 ]]; then
    apt-get update -q && apt-get install -qy --no-install-recommends "${need[@]}"
  else
    echo "missing: run  sudo apt-get install -y ${need[*]}" >&2
    exit 1
  fi
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p media
failures=0
fail() {
  echo "FAIL $*" >&2
  failures=$((failures + 1))
}
run_ffmpeg() { ffmpeg -nostdin -hide_banner -loglevel error -y "$@"; }
probe() { ffprobe -v error -show_entries "$2" -of default=nw=1:nk=1 "$1"; }

# ---- speech -------------------------------------------------------------------------------------

# speech NUMBER VARIANT WORDS-A-MINUTE PITCH then, in turn, LANGUAGE SENTENCE PAUSE-AFTER-IT (s)
speech() {
  local number=$1 variant=$2 speed=$3 pitch=$4 part=0
  local out=media/speech-$1.ogg inputs=() filter='' labels=''
  wanted "$out" || return 0
  shift 4
  while (($#)); do
    espeak-ng -v "$1+$variant" -s "$speed" -p "$pitch" -w "$work/$number-$part.wav" "$2"
    inputs+=(-i "$work/$number-$part.wav")
    # espeak-ng ends each sentence with silence of its own: cut it, then pause as asked.
    filter+="[$part:a]aresample=48000,areverse,silenceremove=start_periods=1:start_threshold=-50dB,"
    filter+="areverse,apad=pad_dur=$3[p$part];"
    labels+="[p$part]"
    part=$((part + 1))
    shift 3
  done
  # The end is padded to a whole frame of 20 ms, so that the packets can be sent round and round.
  run_ffmpeg "${inputs[@]}" -filter_complex \
    "${filter}${labels}concat=n=$part:v=0:a=1,loudnorm=I=-20:TP=-3:LRA=11,aresample=48000,\
asetnsamples=n=960:p=1[out]" -map '[out]' -ac 1 \
    -c:a libopus -application voip -b:a 32k -vbr on -frame_duration 20 \
    -map_metadata -1 -fflags +bitexact -flags +bitexact "$out"

  local seconds rate
  seconds=$(probe "$out" format=duration)
  rate=$(awk -v b="$(stat -c %s "$out")" -v s="$seconds" 'BEGIN { printf "%.1f", b * 8 / s / 1000 }')
  awk -v s="$seconds" 'BEGIN { exit !(s >= 8 && s <= 13) }' || fail "$out lasts $seconds s"
  awk -v r="$rate" 'BEGIN { exit !(r >= 20 && r <= 38) }' || fail "$out has $rate kbit/s"
  [[ $(probe "$out" stream=codec_name,sample_rate,channels | paste -sd,) == opus,48000,1 ]] ||
    fail "$out is not 48 kHz mono Opus"
  # The first packet and the last show less: Opus leaves out the encoder's delay at either end.
  [[ $(probe "$out" packet=duration_time | sed '1d;$d' | sort -u) == 0.020000 ]] ||
    fail "$out is not in frames of 20 ms"
  echo "$out  $seconds s  $rate kbit/s"
}

speech 1 m1 150 45 \
  en-us "Good evening, everyone. I am glad that you found the room." 0.9 \
  ko "오늘 모임에 오신 것을 환영합니다." 0.8 \
  en-us "Let us wait a minute for the others." 1.0
speech 2 f1 160 60 \
  ko "안녕하세요, 제 목소리가 잘 들리나요?" 0.9 \
  en-us "I can hear you well, and I can see the garden behind you." 0.8 \
  ko "차 한 잔 마시면서 천천히 이야기해요." 0.9
speech 3 m3 140 35 \
  en-us "We meet every month, and every month the table grows longer." 1.0 \
  en-us "Somebody brings bread, and somebody brings a new song." 1.2
speech 4 f2 170 70 \
  en-us "May I say something?" 0.7 \
  ko "저는 다음 모임을 바닷가에서 하면 좋겠어요." 0.8 \
  en-us "The train takes an hour, and we could walk along the water." 1.1
speech 5 m5 155 55 \
  ko "먼저 지난달에 나눈 이야기를 정리해 보겠습니다." 0.9 \
  en-us "Three of us wanted a larger hall, and two of us a smaller one." 0.9 \
  ko "어떻게 생각하세요?" 1.0
speech 6 f4 145 50 \
  en-us "When many people speak at once, a good room still lets you follow one voice." 1.1 \
  ko "그래서 우리는 서로의 말을 기다립니다." 1.2
speech 7 m7 165 40 \
  en-us "The children drew a map of the whole village." 0.8 \
  en-us "Look, here is the bridge, and here is the old mill." 0.9 \
  ko "정말 잘 그렸네요." 0.8 \
  en-us "Shall we hang it on the wall?" 0.9
speech 8 f5 150 65 \
  ko "이제 마칠 시간이 되었습니다." 0.9 \
  en-us "Thank you for coming, and thank you for the laughter." 0.9 \
  ko "다음 달에 다시 만나요, 조심히 들어가세요." 1.1

# ---- video --------------------------------------------------------------------------------------

SECONDS_OF_VIDEO=8 # a whole number of keyframe intervals, so that it can be played round and round
KEYFRAME_EVERY=2

# video NAME WIDTHxHEIGHT FRAMES-A-SECOND KBIT/S LAVFI-GRAPH
video() {
  local name=$1 size=$2 fps=$3 kbits=$4 graph=$5
  local out=media/video-$1.ivf
  wanted "$out" || return 0
  # VP8 as a call sends it: one pass, no look-ahead, constant rate, keyframes of limited size.
  # A negative cpu-used is a fixed effort: a positive one follows the clock, and no two runs agree.
  run_ffmpeg -f lavfi -i "$graph" -t $SECONDS_OF_VIDEO -pix_fmt yuv420p \
    -c:v libvpx -deadline realtime -cpu-used -6 -lag-in-frames 0 -error-resilient 1 -threads 1 \
    -b:v "${kbits}k" -minrate "${kbits}k" -maxrate "${kbits}k" -bufsize "${kbits}k" \
    -undershoot-pct 100 -overshoot-pct 15 -max-intra-rate 900 -qmin 2 -qmax 63 \
    -g $((fps * KEYFRAME_EVERY)) -keyint_min $((fps * KEYFRAME_EVERY)) \
    -force_key_frames "expr:gte(t,n_forced*$KEYFRAME_EVERY)" \
    -map_metadata -1 -fflags +bitexact -flags +bitexact "$out"

  local rate keyframes frames
  rate=$(($(stat -c %s "$out") * 8 / SECONDS_OF_VIDEO / 1000))
  frames=$(probe "$out" packet=flags | wc -l)
  keyframes=$(probe "$out" packet=flags | grep -n K | cut -d: -f1 | paste -sd,)
  ((rate * 100 >= kbits * 85 && rate * 100 <= kbits * 115)) ||
    fail "$out has $rate kbit/s, not $kbits"
  [[ $(probe "$out" stream=codec_name,width,height,r_frame_rate | paste -sd,) == \
    "vp8,${size/x/,},$fps/1" ]] || fail "$out is not VP8 of $size at $fps frames a second"
  ((frames == fps * SECONDS_OF_VIDEO)) || fail "$out has $frames frames"
  local step=$((fps * KEYFRAME_EVERY))
  [[ $keyframes == "$(seq 1 $step "$frames" | paste -sd,)" ]] ||
    fail "$out has its keyframes at $keyframes"
  echo "$out  $frames frames  $rate kbit/s  keyframes at $keyframes"
}

# 180p, 360p and 480p are also the layers of a camera that is sent with simulcast.
video 180p 320x180 20 130 "testsrc2=size=320x180:rate=20"
video 360p 640x360 20 600 "testsrc2=size=640x360:rate=20"
video 480p 848x480 25 1000 \
  "gradients=size=848x480:rate=25:speed=0.03:seed=7:nb_colors=4:c0=0x204060:c1=0xd08040:c2=0x60a080:c3=0xe0e0d0[bg];\
testsrc2=size=320x240:rate=25[box];[bg][box]overlay=x='264+240*sin(2*PI*t/8)':y='120+100*cos(2*PI*t/4)'"
video 1080p 1920x1080 30 1460 \
  "gradients=size=1920x1080:rate=30:speed=0.02:seed=11:nb_colors=3:c0=0x102030:c1=0x7050a0:c2=0xd0b070[bg];\
mandelbrot=size=320x180:rate=30:start_scale=2.5:end_scale=1.5:end_pts=240:maxiter=60,scale=480:270[deep];\
testsrc2=size=480x270:rate=30[box];[bg][deep]overlay=x=1320:y=120[both];\
[both][box]overlay=x='720+600*sin(2*PI*t/8)':y='500+260*cos(2*PI*t/8)'"

# ---- all together -------------------------------------------------------------------------------

cat >media/LICENSE.md <<'TEXT'
# The files in this folder

All media were made by `scripts/media.sh`, and nothing in them comes from anybody else: the sentences
were written for moim and spoken by espeak-ng, and the pictures are those of ffmpeg's generators
(`testsrc2`, `gradients`, `mandelbrot`). They are under the licence of moim itself (Apache-2.0).

- `speech-N.ogg`: eight voices, 10 to 13 seconds with pauses, Opus in Ogg, 48 kHz mono, 20 ms frames.
- `video-180p.ivf`, `video-360p.ivf`, `video-480p.ivf`, `video-1080p.ivf`: VP8 in IVF, eight seconds, a
  keyframe every two seconds; 0.13, 0.6, 1.0 and 1.46 Mbit/s.

- `chromium-camera.json`: no media, but how long the packets of Chromium's own fake camera were, frame
  by frame, over ten seconds; noted by `scripts/record-camera.py`.

- `pictures-*.json`: no media either, but how many bytes the frames of Chromium's own encoder had. `scripts/record-pictures.mjs`
  noted them of a talking head, of a screen with text and of slides. The head was made of a portrait in the public
  domain (NASA, which scikit-image brings along), of which nothing is in these files.

Each of the others can be played round and round.
TEXT

for file in "${only[@]}"; do
  [[ -f $file ]] || fail "$file is none of these files"
done
total=$(cat media/* | wc -c)
((total <= 4 * 1024 * 1024)) || fail "media/ is $total bytes"
echo "media/  $total bytes"
((failures == 0))
